#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the inputs that the fuzzers begin with, below fuzz/corpus: small ones that reach every part of each reader."""

import json
import pathlib
import struct
import sys

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # by value type
STRING, ARRAY = 8, 9
F32 = 0
# Number of a type -> values and bytes of its blocks, as in docs of the format.
BLOCKS = {1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 30: (1, 2)}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, given):
    if kind == STRING:
        return text(given)
    if kind == ARRAY:
        element, items = given
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, i) for i in items)
    return struct.pack("<" + NUMBERS[kind], given)


def gguf(keys, tensors=(), version=3):
    """keys: (name, type, value); tensors: (name, dimensions innermost first, type, bytes)."""
    out = struct.pack("<IIQQ", 0x46554747, version, len(tensors), len(keys))
    for name, kind, given in keys:
        out += text(name) + struct.pack("<I", kind) + value(kind, given)
    data = b""
    for name, dimensions, kind, raw in tensors:
        out += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    return out + bytes(-len(out) % 32) + data


def gguf_files():
    architecture = ("general.architecture", STRING, "llama")
    yield "empty", gguf([architecture])
    yield "values", gguf([architecture, *((f"v{kind}", kind, 1) for kind in NUMBERS),
                          *((f"a{kind}", ARRAY, (kind, [0, 1])) for kind in NUMBERS),
                          ("texts", ARRAY, (STRING, ["a", "", "\u00e9"]))], version=2)
    yield "tensors", gguf([architecture, ("general.alignment", 4, 32)],
                          [("a", (2, 3), F32, struct.pack("<6f", *range(6))),
                           *((f"t{kind}", (values, 2), kind, bytes(i % 251 for i in range(2 * size)))
                             for kind, (values, size) in BLOCKS.items())])
    yield "bpe", gguf([architecture, ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
                       ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "ab", "<e>"])),
                       ("tokenizer.ggml.token_type", ARRAY, (5, [1, 1, 1, 3])),
                       ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"])), ("tokenizer.ggml.eos_token_id", 4, 3),
                       ("tokenizer.ggml.add_bos_token", 7, False)])
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    yield "spm", gguf([architecture, ("tokenizer.ggml.model", STRING, "llama"),
                       ("tokenizer.ggml.tokens", ARRAY, (STRING, [*pieces, "\u2581a", "<s>"])),
                       ("tokenizer.ggml.token_type", ARRAY, (0, [*[6] * 256, 1, 3])),
                       ("tokenizer.ggml.scores", ARRAY, (1, [*[0] * 257, 1])), ("tokenizer.ggml.bos_token_id", 4, 257)])


def tokenizer_inputs():
    """Flags (scores, a space first, two bits of the pre-tokenizer, all bytes), then lines as fuzz/tokenizer_fuzz.cpp says."""
    pieces = "aab\nabc\nqabc\nc<s>\ndxx\n\na b\nab c\n\n"
    plain = "abcab <s>xx it's 123\u00e9 \n\tb"
    for name, flags in (("bpe", 16), ("digits", 16 + 4), ("whole", 16 + 8), ("unknown", 12)):
        yield name, bytes([flags]) + (pieces + plain).encode()
    yield "bare", b"\x00aa\nab\naab\n\na b\n\nabba"
    scored = "aab\n)\u2581a\n1b \u2581\nc<s>\nd  \n\n\n"
    for name, flags in (("scored", 17), ("space_first", 19)):
        yield name, bytes([flags]) + (scored + "ab  a<s> b\u2581 \u00e9").encode() + b"\xf0\x9f\x99 \xff"


def prompt_files():
    yield "plain", b'{"prompt": "a\\n\\u00e9\\ud83d\\ude42"}\n'
    yield "fields", (b'{"prompt": "caf\xc3\xa9", "bos": true, "special": false, "max_tokens": 16, "temperature": 0.5, '
                     b'"seed": 7, "n": 2, "stop": ["\\n", "END"]}\r\n\n{"prompt": "", "chat": true, "system": "s"}')
    yield "ids", b'{"id": {"x": [1, null, -2.5e-3, {"x": "y"}]}, "prompt": "p"}\n{"id": 18446744073709551615, "prompt": ""}'
    yield "refused", b'{"prompt": "a", "spans": []}\n[1]\n{"prompt": 1e999, "prompt": "b"}\n'


def chat_inputs():
    """Flags (a system text), the user's text, a zero byte, the template; as fuzz/chat_template_fuzz.cpp says."""
    chatml = (r"""{% for m in messages %}{{ "<|im_start|>" + m['role'] + "\n" + m.content + "<|im_end|>\n" }}{% endfor %}"""
              r"""{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""")
    default = r"""{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou\'re it.<|im_end|>\n' }}{% endif %}"""
    gemma = (r"""{{ bos_token }}{%- for m in messages -%}{{ '<start_of_turn>' + m.role + '\n' + m.content | trim }}"""
             r"""{{ '<end_of_turn>\n' }}{%- endfor -%}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}""")
    tools = r"""{%- if tools %}{{- '<|im_start|>system\n# Tools' }}{%- else %}{# none #}{%- endif -%}"""
    for name, flags, template in (("chatml", 0, chatml), ("default", 0, default + chatml), ("system", 1, default + chatml),
                                  ("gemma", 1, gemma), ("tools", 0, tools + chatml), ("open", 0, "{{ 'a' + {% if \"b"),
                                  ("other", 0, "[INST] {{ m }} [/INST]")):
        yield name, bytes([flags]) + b" Name \xc3\xa9. \0" + template.encode()


def call_file(call, tensors=(), **metadata):
    """tensors: (name, type, shape, bytes)."""
    header, data = {"__metadata__": {"fovea_call": json.dumps({"version": 1, **call}), **metadata}}, b""
    for name, kind, shape, raw in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    raw = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def call_files():
    layer = {"num_heads": 2, "num_kv_heads": 1, "head_size": 2, "head_size_v": 1}
    yield "least", call_file({"layer": layer, "requests": []}, format="pt")
    yield "fields", call_file({
        "layer": {**layer, "scale": 0.1, "logits_soft_cap": 2.5, "sliding_window": 3, "dtype": "bf16",
                  "output_dtype": "f32", "kv_dtype": "f16", "non_causal": True},
        "requests": [[2, 5], [3, 2]], "causal": False, "steps": [[[1, 4], [2, 1]], [[1, 5], [1, 2]]],
        "tensors": {"q": {"rule": "normal", "seed": 2 ** 64 - 1}, "k": {"rule": "constant", "value": -0.5},
                    "v": {"rule": "index"}},
        "streams": [3, 0], "poison": ["tails", "hidden"],
        "cache": {"layout": "LBNHC", "form": "sparse_keys", "kernel_block_size": 2,
                  "kernel_blocks_per_manager_block": 2, "blocks": [[2, 0], [1]], "num_blocks": 3, "seed": 7}})
    yield "placement", call_file({
        "layer": layer, "requests": [[1, 1]], "poison": [],
        "cache": {"layout": "BHLNC", "form": "paged", "num_layers": 2, "layer": 1, "num_blocks": 9,
                  "block_zero_lives": True},
        "placement": {"strided": "out", "head_major": True, "flat": False, "padding_rows": 2, "padded_slots": True,
                      "token_stride": 4, "lazy_memory": True},
        "outputs": {"lse": False, "lse_base": "2", "lse_layout": "tokens_heads"}, "execution": {"threads": 2}})
    explicit = {name: {"rule": "explicit"} for name in "qkv"}
    yield "explicit", call_file(
        {"layer": layer, "requests": [[1, 2], [0, 1]], "tensors": explicit},
        [("q.0", "F64", [1, 2, 2], struct.pack("<4d", 0.1, -2, 3, 4)), ("q.1", "F16", [0, 2, 2], b""),
         ("k.0", "F32", [2, 1, 2], struct.pack("<4f", 1, 2, 3, 4)), ("k.1", "F16", [1, 1, 2], struct.pack("<2e", 1, -2)),
         ("v.0", "BF16", [2, 1, 1], b"\x80\x3f\x00\xc0"), ("v.1", "F32", [1, 1, 1], struct.pack("<f", 0.5))])
    yield "refused", call_file({"layer": {**layer, "num_head": 2}, "requests": [[1, 10 ** 12]], "spans": None})
    for name, more in (("document", {}), ("rules", {"tensors": {"q": {"rule": "index"}, "v": {"value": 1e-3}}}),
                       ("steps", {"steps": [[[1, 2]], [[2, 4]]], "cache": {"blocks": [[1]], "num_blocks": 2}})):
        yield name, json.dumps({"version": 1, "layer": layer, "requests": [[3, 4]], **more}).encode()


TARGETS = {"gguf": gguf_files, "tokenizer": tokenizer_inputs, "prompts": prompt_files, "chat_template": chat_inputs,
           "call_file": call_files}


def main():
    """With --check nothing is written; 1 if a file differs from what would be."""
    check, differing = sys.argv[1:] == ["--check"], []
    folder = pathlib.Path(__file__).resolve().parent / "corpus"
    for target, inputs in TARGETS.items():
        wanted = dict(inputs())
        there = {f.name: f.read_bytes() for f in (folder / target).glob("*")}
        differing += [f"{target}/{name}" for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name)]
        if not check:
            (folder / target).mkdir(parents=True, exist_ok=True)
            for name, raw in wanted.items():
                (folder / target / name).write_bytes(raw)
    if check and differing:
        sys.exit("not as fuzz/make_corpus.py writes them: " + ", ".join(sorted(differing)))


if __name__ == "__main__":
    main()
