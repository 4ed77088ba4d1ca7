"""Files that other libraries wrote, and libraries that read what ckptfs writes.

tests/samples/libraries/make_samples.py tells how each file was made. None of those libraries is
needed here.
"""

import json

import ckptfs
import view

FOLDER = ckptfs.SAMPLES / "libraries"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


class Files(ckptfs.Case):
    def test_no_file_is_forgotten(self):
        self.assertEqual({p.name for p in FOLDER.iterdir()} - {"make_samples.py", "expected.json"},
                         set(EXPECTED))

    def test_every_tensor_is_there_and_right(self):
        for name, wanted in EXPECTED.items():
            with self.subTest(name), self.mount(FOLDER / name) as mount:
                self.assertEqual(view.tensors(mount.path),
                                 {keys: [view.Leaf(dtype, tuple(shape), digest)]
                                  for keys, (dtype, shape, digest) in wanted.items()})

    def test_values_of_a_model_of_stable_baselines3(self):
        with self.mount(FOLDER / "stable_baselines3.zip") as mount:
            values = view.values(mount.path)
            data, = values["data"]
            self.assertEqual((data["buffer_size"], data["policy_kwargs"]), (64, {"net_arch": [4]}))
            self.assertEqual(values["_stable_baselines3_version"], ["2.9.2"])

    def test_values_of_a_model_of_tabnet(self):
        with self.mount(FOLDER / "tabnet.zip") as mount:
            parameters, = view.values(mount.path)["model_params.json"]
            self.assertEqual(parameters["init_params"]["n_steps"], 1)


class Lines(ckptfs.Case):
    """tensors.jsonl, as pandas reads it."""

    SAMPLES = ("torch-2.13/dtypes_v3.pth", "torch-1.13/weirdkeys.pth", "gguf/w_types.gguf",
               "zanj/zanj-0.6/members.zanj", "dcp/torch-2.13/dcp", "npy/names.npz")

    def setUp(self):
        try:
            import pandas
        except ImportError as error:
            self.skip_avoidable(str(error))
        self.pandas = pandas

    def test_are_rows_of_a_table(self):
        for name in self.SAMPLES:
            with self.subTest(name), self.mount(ckptfs.SAMPLES / name, quiet=False) as mount:
                wanted = view.lines(mount.path)
                table = self.pandas.read_json(mount / "tensors.jsonl", lines=True, dtype=False)
                self.assertEqual(list(table["key"]), [line["key"] for line in wanted])
                self.assertEqual(list(table["path"]), [line["path"] for line in wanted])
                self.assertEqual(list(table["bytes"]), [line["bytes"] for line in wanted])
                shapes = [None if line["shape"] is None else list(line["shape"]) for line in wanted]
                found = [shape if isinstance(shape, list) else None for shape in table["shape"]]
                self.assertEqual(found, shapes)
