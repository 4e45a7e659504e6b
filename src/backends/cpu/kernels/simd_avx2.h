// SPDX-License-Identifier: Apache-2.0
// Eight floats or four doubles in an AVX register (AVX2, FMA, F16C), as the kernel templates see
// them.
#pragma once

#include <immintrin.h>

namespace fovea::cpu::avx2 {

struct Floats {
  using Number = float;
  using V = __m256;
  static constexpr int kLanes = 8;
  // Register block of the matrix products: 6 · 2 sums, 2 loaded vectors, 1 broadcast.
  static constexpr int kRows = 6, kVectors = 2;

  static V zero() { return _mm256_setzero_ps(); }
  static V set(float x) { return _mm256_set1_ps(x); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, V x) { _mm256_storeu_ps(p, x); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  // a · b + c
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  // c - a · b
  static V fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
  // If either is NaN, the result is b.
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V abs(V x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x); }
  static V copy_sign(V magnitude, V sign) {
    const V bit = _mm256_set1_ps(-0.0F);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
  }
  // a < b ? yes : no; a NaN gives no.
  static V select_less(V a, V b, V yes, V no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  // Lanes whose number plus `first` lies in [begin, end) keep x, the others become `other`.
  static V keep(V x, V other, int first, int begin, int end) {
    const __m256i lane =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    const __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                        _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(end - 1)));
    return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(out));
  }
  static V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // x · 2^n for a whole n in [-126, 127]; x and the result are normal numbers, or NaN.
  static V scale_by_power(V x, V n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
  }
  static float reduce_max(V x) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
  }
  static float reduce_add(V x) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
  }

  static V load_f32(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  static void store_f32(void* p, V x) { _mm256_storeu_ps(static_cast<float*>(p), x); }
  static V load_f16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static V load_bf16(const void* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static void store_f16(void* p, V x) {
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(void* p, V x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i result = _mm256_blendv_epi8(rounded, quiet, nan);
    _mm_storeu_si128(
        static_cast<__m128i*>(p),
        _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1)));
  }

  // Element j of r[i] becomes element i of r[j].
  static void transpose(V (&r)[kLanes]) {
    V t[kLanes];
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < kLanes; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
      t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; ++i) r[i] = t[i];
  }
};

struct Doubles {
  using Number = double;
  using V = __m256d;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 6, kVectors = 2;

  static V zero() { return _mm256_setzero_pd(); }
  static V set(double x) { return _mm256_set1_pd(x); }
  static V load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, V x) { _mm256_storeu_pd(p, x); }
  static V add(V a, V b) { return _mm256_add_pd(a, b); }
  static V sub(V a, V b) { return _mm256_sub_pd(a, b); }
  static V mul(V a, V b) { return _mm256_mul_pd(a, b); }
  static V div(V a, V b) { return _mm256_div_pd(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static V fnma(V a, V b, V c) { return _mm256_fnmadd_pd(a, b, c); }
  static V max(V a, V b) { return _mm256_max_pd(a, b); }
  static V abs(V x) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x); }
  static V copy_sign(V magnitude, V sign) {
    const V bit = _mm256_set1_pd(-0.0);
    return _mm256_or_pd(_mm256_andnot_pd(bit, magnitude), _mm256_and_pd(bit, sign));
  }
  static V select_less(V a, V b, V yes, V no) {
    return _mm256_blendv_pd(no, yes, _mm256_cmp_pd(a, b, _CMP_LT_OQ));
  }
  static V keep(V x, V other, int first, int begin, int end) {
    const __m256i lane =
        _mm256_add_epi64(_mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x(first));
    const __m256i out = _mm256_or_si256(_mm256_cmpgt_epi64(_mm256_set1_epi64x(begin), lane),
                                        _mm256_cmpgt_epi64(lane, _mm256_set1_epi64x(end - 1)));
    return _mm256_blendv_pd(x, other, _mm256_castsi256_pd(out));
  }
  static V round(V x) { return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // As for floats. Adding 1.5 · 2^52 leaves n in the low bits.
  static V scale_by_power(V x, V n) {
    const V big = _mm256_set1_pd(6755399441055744.0);
    const __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(_mm256_add_pd(n, big)), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x), exponent));
  }
  static double reduce_max(V x) {
    const __m128d b = _mm_max_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_max_sd(b, _mm_unpackhi_pd(b, b)));
  }
  static double reduce_add(V x) {
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
  }

  static V load_f32(const void* p) {
    return _mm256_cvtps_pd(_mm_loadu_ps(static_cast<const float*>(p)));
  }
  static void store_f32(void* p, V x) { _mm_storeu_ps(static_cast<float*>(p), _mm256_cvtpd_ps(x)); }
  static V load_f16(const void* p) {
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  }
  static V load_bf16(const void* p) {
    const __m128i wide = _mm_cvtepu16_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(wide, 16)));
  }
  static void store_f16(void* p, V x) {
    _mm_storel_epi64(
        static_cast<__m128i*>(p),
        _mm_cvtps_ph(_mm256_cvtpd_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(void* p, V x) {
    const __m128 narrow = _mm256_cvtpd_ps(x);
    const __m128i bits = _mm_castps_si128(narrow);
    const __m128i high = _mm_srli_epi32(bits, 16);
    const __m128i odd = _mm_and_si128(high, _mm_set1_epi32(1));
    const __m128i rounded =
        _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7FFF)), odd), 16);
    const __m128i quiet = _mm_or_si128(high, _mm_set1_epi32(0x40));
    const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(narrow, narrow));
    const __m128i result = _mm_blendv_epi8(rounded, quiet, nan);
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packus_epi32(result, result));
  }

  static void transpose(V (&r)[kLanes]) {
    const V a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    const V c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
  }
};

}  // namespace fovea::cpu::avx2
