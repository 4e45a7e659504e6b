// SPDX-License-Identifier: Apache-2.0
// Sixteen floats or eight doubles in an AVX-512 register (F, BW, DQ, VL), as the kernel templates
// see them.
#pragma once

// GCC 12 warns of variables that its own header leaves without a value on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

namespace fovea::cpu::avx512 {

struct Floats {
  using Number = float;
  using V = __m512;
  static constexpr int kLanes = 16;
  // Register block of the matrix products: 6 · 4 sums, 4 loaded vectors, 1 broadcast.
  static constexpr int kRows = 6, kVectors = 4;

  static V zero() { return _mm512_setzero_ps(); }
  static V set(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V x) { _mm512_storeu_ps(p, x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  // a · b + c
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  // c - a · b
  static V fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
  // If either is NaN, the result is b.
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V abs(V x) { return _mm512_abs_ps(x); }
  static V copy_sign(V magnitude, V sign) {
    const V bit = _mm512_set1_ps(-0.0F);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
  }
  // a < b ? yes : no; a NaN gives no.
  static V select_less(V a, V b, V yes, V no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  // Lanes whose number plus `first` lies in [begin, end) keep x, the others become `other`.
  static V keep(V x, V other, int first, int begin, int end) {
    const __m512i lane =
        _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(first));
    const __mmask16 in = _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(begin), _MM_CMPINT_NLT) &
                         _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(end), _MM_CMPINT_LT);
    return _mm512_mask_blend_ps(in, other, x);
  }
  static V round(V x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // x · 2^n for a whole n in [-126, 127].
  static V scale_by_power(V x, V n) { return _mm512_scalef_ps(x, n); }
  static float reduce_max(V x) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
  }
  static float reduce_add(V x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
  }

  static V load_f32(const void* p) { return _mm512_loadu_ps(p); }
  static void store_f32(void* p, V x) { _mm512_storeu_ps(p, x); }
  static V load_f16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static V load_bf16(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void store_f16(void* p, V x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(void* p, V x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
  }

  // Element j of r[i] becomes element i of r[j].
  static void transpose(V (&r)[kLanes]) {
    V t[kLanes];
    // Pairs of rows, then groups of four inside the 128-bit parts; then the parts themselves.
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
      t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xDD);
      r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
      r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xDD);
    }
  }
};

struct Doubles {
  using Number = double;
  using V = __m512d;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6, kVectors = 4;

  static V zero() { return _mm512_setzero_pd(); }
  static V set(double x) { return _mm512_set1_pd(x); }
  static V load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, V x) { _mm512_storeu_pd(p, x); }
  static V add(V a, V b) { return _mm512_add_pd(a, b); }
  static V sub(V a, V b) { return _mm512_sub_pd(a, b); }
  static V mul(V a, V b) { return _mm512_mul_pd(a, b); }
  static V div(V a, V b) { return _mm512_div_pd(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static V fnma(V a, V b, V c) { return _mm512_fnmadd_pd(a, b, c); }
  static V max(V a, V b) { return _mm512_max_pd(a, b); }
  static V abs(V x) { return _mm512_abs_pd(x); }
  static V copy_sign(V magnitude, V sign) {
    const V bit = _mm512_set1_pd(-0.0);
    return _mm512_or_pd(_mm512_andnot_pd(bit, magnitude), _mm512_and_pd(bit, sign));
  }
  static V select_less(V a, V b, V yes, V no) {
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static V keep(V x, V other, int first, int begin, int end) {
    const __m256i lane =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    const __mmask8 from = _mm256_cmp_epi32_mask(lane, _mm256_set1_epi32(begin), _MM_CMPINT_NLT);
    return _mm512_mask_blend_pd(
        _mm256_mask_cmp_epi32_mask(from, lane, _mm256_set1_epi32(end), _MM_CMPINT_LT), other, x);
  }
  static V round(V x) {
    return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static V scale_by_power(V x, V n) { return _mm512_scalef_pd(x, n); }
  static double reduce_max(V x) {
    const __m256d a = _mm256_max_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    const __m128d b = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_max_sd(b, _mm_unpackhi_pd(b, b)));
  }
  static double reduce_add(V x) {
    const __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
  }

  static V load_f32(const void* p) {
    return _mm512_cvtps_pd(_mm256_loadu_ps(static_cast<const float*>(p)));
  }
  static void store_f32(void* p, V x) {
    _mm256_storeu_ps(static_cast<float*>(p), _mm512_cvtpd_ps(x));
  }
  static V load_f16(const void* p) {
    return _mm512_cvtps_pd(_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  static V load_bf16(const void* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  static void store_f16(void* p, V x) {
    _mm_storeu_si128(
        static_cast<__m128i*>(p),
        _mm256_cvtps_ph(_mm512_cvtpd_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(void* p, V x) {
    const __m256 narrow = _mm512_cvtpd_ps(x);
    const __m256i bits = _mm256_castps_si256(narrow);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __mmask8 nan = _mm256_cmp_ps_mask(narrow, narrow, _CMP_UNORD_Q);
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm256_cvtepi32_epi16(_mm256_mask_blend_epi32(nan, rounded, quiet)));
  }

  static void transpose(V (&r)[kLanes]) {
    V t[kLanes];
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i += 2) {
      t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      r[i] = _mm512_shuffle_f64x2(t[i], t[i + 2], 0x88);
      r[i + 2] = _mm512_shuffle_f64x2(t[i], t[i + 2], 0xDD);
      r[i + 4] = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0x88);
      r[i + 6] = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0xDD);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      t[i] = _mm512_shuffle_f64x2(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f64x2(r[i], r[i + 4], 0xDD);
      t[i + 2] = _mm512_shuffle_f64x2(r[i + 2], r[i + 6], 0x88);
      t[i + 6] = _mm512_shuffle_f64x2(r[i + 2], r[i + 6], 0xDD);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; ++i) r[i] = t[i];
  }
};

}  // namespace fovea::cpu::avx512
