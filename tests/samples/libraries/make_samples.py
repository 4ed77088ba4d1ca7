"""Makes the samples of this folder, each with the library that people save it with, and expected.json
with what these libraries read back. Usage: make_samples.py, in this folder, with the CPU versions of
torch 2.13, stable-baselines3 2.9.2, gymnasium 1.4.0, pytorch-tabnet 4.1.0, jax 0.10.2, equinox 0.13.8,
dm-haiku and optax.
"""

import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import torch


def leaf(array):
    """Type, shape and digest of an array as a mount shows them."""
    if isinstance(array, torch.Tensor):
        array = array.detach().contiguous()
        data = array.reshape(-1).view(torch.uint8).numpy().tobytes()
        return [str(array.dtype), list(array.shape), hashlib.sha256(data).hexdigest()]
    array = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
    dtype, shape = f"torch.{array.dtype}", list(array.shape)
    if array.dtype.kind == "V" and array.dtype.name != "bfloat16":  # NumPy writes no more than the width.
        dtype, shape = "torch.uint8", [*shape, array.dtype.itemsize]
    return [dtype, shape, hashlib.sha256(array.tobytes()).hexdigest()]


def flatten(value, keys=""):
    """{dotted keys: leaf} of all arrays in dicts, lists and tuples."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    else:
        return {keys: leaf(value)} if hasattr(value, "dtype") else {}
    found = {}
    for key, item in pairs:
        found |= flatten(item, f"{keys}.{key}" if keys else str(key))
    return found


def stable_baselines3():
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.save_util import load_from_zip_file
    model = DQN("MlpPolicy", gymnasium.make("CartPole-v1"), buffer_size=64, seed=0, device="cpu",
                policy_kwargs={"net_arch": [4]})
    model.save("stable_baselines3.zip")
    _, parameters, variables = load_from_zip_file("stable_baselines3.zip", device="cpu")
    return flatten({f"{name}.pth": state for name, state in parameters.items()} | (variables or {}))


def tabnet():
    from pytorch_tabnet.tab_model import TabNetClassifier
    inputs = np.random.rand(32, 3).astype(np.float32)
    model = TabNetClassifier(n_d=2, n_a=2, n_steps=1, n_shared=1, n_independent=1, verbose=0,
                             device_name="cpu")
    model.fit(inputs, (inputs[:, 0] > 0.5).astype(int), max_epochs=1, batch_size=16,
              virtual_batch_size=16)
    model.save_model("tabnet")
    with zipfile.ZipFile("tabnet.zip") as archive:
        return flatten({"network.pt": torch.load(io.BytesIO(archive.read("network.pt")))})


def equinox():
    import equinox as library
    import jax
    import jax.numpy as jnp
    model = library.nn.MLP(3, 2, 4, 1, key=jax.random.PRNGKey(0))
    halves = jax.tree_util.tree_map(
        lambda x: x.astype(jnp.bfloat16) if library.is_array(x) else x, model)
    saved = (model, halves, 3, 2.5, True, jnp.zeros((0, 3)), np.float64(2))
    library.tree_serialise_leaves("equinox.eqx", saved)
    again = library.tree_deserialise_leaves("equinox.eqx", saved)
    leaves = [x for x in jax.tree_util.tree_leaves(again) if not callable(x)]
    arrays = [np.asarray(x) for x in leaves]
    return {str(i): leaf(a.view("V2") if a.dtype.name == "bfloat16" else a)
            for i, a in enumerate(arrays)}


def haiku():
    import haiku as library
    import jax
    import jax.numpy as jnp
    import optax
    network = library.transform(lambda x: library.nets.MLP([4, 2])(x))
    parameters = network.init(jax.random.PRNGKey(1), jnp.ones((1, 3)))
    halves = jax.tree_util.tree_map(lambda x: x.astype(jnp.bfloat16), parameters)
    optimizer = optax.adam(optax.linear_schedule(1e-3, 1e-4, 10))
    with open("haiku.pkl", "wb") as file:
        pickle.dump({"params": parameters, "halves": halves, "optimizer": optimizer.init(parameters),
                     "key": jax.random.PRNGKey(3), "step": jnp.int32(7)}, file)
    with open("haiku.pkl", "rb") as file:
        again = pickle.load(file)
    return flatten(jax.tree_util.tree_map(np.asarray, again))


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    expected = {"stable_baselines3.zip": stable_baselines3(), "tabnet.zip": tabnet(),
                "equinox.eqx": equinox(), "haiku.pkl": haiku()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(told)}" for name, told in expected.items())
    Path("expected.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
