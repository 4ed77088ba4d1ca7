"""What users of remote checkpoints do with them; prints the seconds that it took, without imports.

    remote_consumer.py clone DIRECTORY          TensorDict.load_memmap().clone() of a mount
    remote_consumer.py load-state DIRECTORY     load_state_dict() of a module, from tensors mapped by torch
    remote_consumer.py boto3 BUCKET KEY         download_fileobj() of boto3, 10 ranges in parallel
    remote_consumer.py s3torchconnector URL     read() of S3Checkpoint.reader()
    remote_consumer.py runai URL                SafetensorsStreamer of runai_model_streamer
"""

import io
import json
import os
import sys
import time
from pathlib import Path


def timed(function):
    begin = time.perf_counter()
    result = function()
    print(f"{time.perf_counter() - begin:.6f}")
    return result


def clone(directory):
    from tensordict import TensorDict
    timed(lambda: TensorDict.load_memmap(directory).clone())


def module_of(tensors):
    """A module with parameters of these names, types and shapes."""
    import torch
    root = torch.nn.Module()
    for name, dtype, shape in tensors:
        *parents, last = name.split(".")
        module = root
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, torch.nn.Module())
            module = module._modules[parent]
        module.register_parameter(last, torch.nn.Parameter(torch.zeros(shape, dtype=dtype), False))
    return root


def load_state(directory):
    import torch
    lines = [json.loads(line) for line in Path(directory, "tensors.jsonl").read_text().splitlines()]
    dtypes = [getattr(torch, line["dtype"].removeprefix("torch.")) for line in lines]
    module = module_of((line["key"], dtype, line["shape"]) for line, dtype in zip(lines, dtypes))

    def load():
        module.load_state_dict({
            line["key"]: torch.from_file(f"{directory}/{line['path']}", dtype=dtype,
                                         size=line["bytes"] // dtype.itemsize).view(line["shape"])
            for line, dtype in zip(lines, dtypes)})
    timed(load)


def boto3(bucket, key):
    import boto3
    from boto3.s3.transfer import TransferConfig

    def load():
        client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
        client.download_fileobj(bucket, key, io.BytesIO(), Config=TransferConfig(max_concurrency=10))
    timed(load)


def s3torchconnector(url):
    from s3torchconnector import S3Checkpoint, S3ClientConfig

    def load():
        checkpoint = S3Checkpoint(region="us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL"],
                                  s3client_config=S3ClientConfig(force_path_style=True))
        with checkpoint.reader(url) as reader:
            return reader.read()
    timed(load)


def runai(url):
    from runai_model_streamer import SafetensorsStreamer

    def load():
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(url)
            return [tensor.clone() for _, tensor in streamer.get_tensors()]
    timed(load)


{"clone": clone, "load-state": load_state, "boto3": boto3, "s3torchconnector": s3torchconnector,
 "runai": runai}[sys.argv[1]](*sys.argv[2:])
