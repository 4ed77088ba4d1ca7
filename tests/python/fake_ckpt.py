#!/usr/bin/env python3
"""A stand-in for the program `ckpt`, which logs its arguments to $FAKE_CKPT_LOG and fails on demand. It
knows safetensors files only."""

import json
import os
import sys

command, *arguments = sys.argv[1:]
with open(os.environ["FAKE_CKPT_LOG"], "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
source, *keys = arguments[arguments.index("--") + 1:]
try:
    file = open(source, "rb")
except OSError as error:
    sys.exit(print(f"ckpt: {source}: cannot open: {error.strerror}", file=sys.stderr) or 3)
header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
start = file.tell()
metadata = header.pop("__metadata__", {})
names = {"F32": "float32", "BF16": "bfloat16", "I64": "int64", "F8_E4M3": "float8_e4m3fn"}

if command == "ls":
    print(json.dumps([
        {"key": key, "path": key.replace(".", "/"), "dtype": names[entry["dtype"]], "shape": entry["shape"],
         "bytes": entry["data_offsets"][1] - entry["data_offsets"][0], "other": None}
        for key, entry in header.items()]))
elif command == "info":
    print(json.dumps({"format": "safetensors", "values": metadata}))
elif command == "cat":
    if metadata.get("fail") == keys[0]:
        sys.stdout.buffer.write(b"1234")
        sys.stdout.flush()
        sys.exit(print(f"ckpt: {keys[0]}: Input/output error", file=sys.stderr) or 5)
    begin, end = header[keys[0]]["data_offsets"]
    file.seek(start + begin)
    data = file.read(end - begin)
    sys.stdout.buffer.write({"short": data[1:], "long": data + bytes(1 << 20)}.get(metadata.get("length"), data))
