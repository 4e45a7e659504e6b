#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Call files and the numbers of their rules, from docs/call_file.md alone: what fovea reads and makes must be the same.

  make_call.py normal SEED TENSOR INDEX COUNT   numbers, one a line
  make_call.py write FILE                       a call with numbers of each type, in plain Python
  make_call.py spell_out FROM TO                the call of a file with every number of its rules written out
  make_call.py read FILE                        the document and each number, with the packages safetensors and numpy
"""

import json
import struct
import sys

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def normal(seed, tensor, index):
    state = mix(seed + GOLDEN * (tensor + 1) & MASK)
    words = [mix(state + GOLDEN * (n + 1) & MASK) for n in range(3 * index, 3 * index + 3)]
    return (sum(w >> shift & 0xFFFF for w in words for shift in (0, 16, 32, 48)) - 393210) / 65536


def pack(kind, values):
    if kind == "BF16":  # the upper half of a float32
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{ {'F64': 'd', 'F32': 'f', 'F16': 'e'}[kind] }", *values)


def safetensors(metadata, tensors):
    """tensors: (name, type, shape, values)."""
    header, data = {"__metadata__": metadata}, b""
    for name, kind, shape, values in tensors:
        raw = pack(kind, values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(path):
    """Two requests; q exact in float16 and bfloat16, k as the rule `normal` of seed 9 makes it, v in float64."""
    call = {
        "version": 1,
        "layer": {"num_heads": 2, "num_kv_heads": 1, "head_size": 4, "head_size_v": 3, "scale": 0.1, "dtype": "bf16",
                  "kv_dtype": "f32"},
        "requests": [[2, 3], [1, 1]],
        "tensors": {"q": {"rule": "explicit"}, "k": {"rule": "explicit"}, "v": {"rule": "explicit"}},
        "streams": [MASK >> 40, 0],
        "poison": [],
        "cache": {"kernel_block_size": 2, "blocks": [[3, 0], [1]], "num_blocks": 4, "seed": MASK},
        "outputs": {"lse_base": "2"},
    }
    tensors = [
        ("k.0", "F32", [3, 1, 4], [normal(9, 1, i) for i in range(12)]),
        ("v.1", "F64", [1, 1, 3], [0.1, -1 / 3, 1e-300]),
        ("q.0", "F16", [2, 2, 4], [i / 8 for i in range(16)]),
        ("q.1", "BF16", [1, 2, 4], [-2.0 ** i for i in range(8)]),
        ("v.0", "F64", [3, 1, 3], [i / 10 for i in range(9)]),
        ("k.1", "F32", [1, 1, 4], [normal(9, 4, i) for i in range(4)]),
    ]
    with open(path, "wb") as out:
        out.write(safetensors({"fovea_call": json.dumps(call), "made_by": "make_call.py"}, tensors))


def spell_out(source, target):
    with open(source, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        call = json.loads(json.loads(file.read(size))["__metadata__"]["fovea_call"])
    layer, streams = call["layer"], call.get("streams") or range(len(call["requests"]))
    size_v = layer.get("head_size_v", layer["head_size"])
    kv_heads = layer.get("num_kv_heads", layer["num_heads"])
    tensors = []
    for r, (query_len, kv_len) in enumerate(call["requests"]):
        shapes = ([query_len, layer["num_heads"], layer["head_size"]], [kv_len, kv_heads, layer["head_size"]],
                  [kv_len, kv_heads, size_v])
        for number, (name, shape) in enumerate(zip("qkv", shapes)):
            rule = call["tensors"][name]
            make = {
                "normal": lambda i, t=3 * streams[r] + number, rule=rule: normal(rule["seed"], t, i),
                "constant": lambda i, rule=rule: rule["value"],
                "index": lambda i, row=shape[1] * shape[2]: i // row,
            }[rule["rule"]]
            count = shape[0] * shape[1] * shape[2]
            tensors.append((f"{name}.{r}", "F64", shape, [make(i) for i in range(count)]))
    call["tensors"] = {name: {"rule": "explicit"} for name in "qkv"}
    with open(target, "wb") as out:
        out.write(safetensors({"fovea_call": json.dumps(call)}, tensors))


def read(path):
    import numpy
    from safetensors import deserialize, safe_open

    types = {"F64": numpy.float64, "F32": numpy.float32, "F16": numpy.float16, "BF16": numpy.uint16}
    with safe_open(path, framework="np") as file:
        print(json.dumps(json.loads(file.metadata()["fovea_call"]), separators=(",", ":")))
    with open(path, "rb") as file:
        for name, tensor in sorted(deserialize(file.read())):
            numbers = numpy.frombuffer(tensor["data"], types[tensor["dtype"]])
            if tensor["dtype"] == "BF16":
                numbers = (numbers.astype(numpy.uint32) << 16).view(numpy.float32)
            print(name, tensor["dtype"], *tensor["shape"], *(float(x).hex() for x in numbers))


def main(arguments):
    if len(arguments) == 5 and arguments[0] == "normal":
        seed, tensor, index, count = map(int, arguments[1:])
        for i in range(count):
            print(normal(seed, tensor, index + i).hex())
    elif len(arguments) == 2 and arguments[0] == "write":
        write(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "spell_out":
        spell_out(*arguments[1:])
    elif len(arguments) == 2 and arguments[0] == "read":
        read(arguments[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
