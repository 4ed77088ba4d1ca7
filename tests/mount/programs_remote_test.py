"""transformers on mounts of a hub repository, of an S3 prefix, and of a directory of runs."""

import os
import sys

import ckptfs
import programs_test as programs
import s3_case

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from hub import Hub


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in directory.rglob("*") if path.is_file()}


class Models(ckptfs.Case):
    def setUp(self):
        super().setUp()
        if programs.torch is None:
            self.skip_avoidable(programs.MISSING)
        programs.torch.manual_seed(0)
        self.folder = self.scratch() / "model"
        self.model = programs.LlamaForCausalLM(programs.config())
        self.model.save_pretrained(self.folder)
        programs.save_pickles(self.folder)

    def assert_loads(self, path, model=None):
        loaded = programs.AutoModelForCausalLM.from_pretrained(path).state_dict()
        expected = (model or self.model).state_dict()
        self.assertEqual(set(loaded), set(expected))
        for key, tensor in expected.items():
            self.assertTrue(programs.torch.equal(loaded[key], tensor), key)


class TheHub(Models):
    def test_a_repository(self):
        with Hub() as hub:
            hub.add("org/model", files_of(self.folder))
            home = self.scratch()
            variables = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
            mount = self.mount("hf://org/model", env=variables | {
                "HOME": str(home), "HF_ENDPOINT": hub.endpoint})
            self.assert_loads(mount.path)
            mount.unmount()


class Runs(Models):
    def test_a_step_of_a_directory_of_runs(self):
        runs = self.scratch()
        models = {}
        for step in (1, 2):
            models[step] = programs.LlamaForCausalLM(programs.config())
            path = runs / f"checkpoint-{step}"
            models[step].save_pretrained(path)
            programs.save_pickles(path)
            programs.torch.save({"state": {0: programs.torch.ones(3)}}, path / "optimizer.pt")
        mount = self.mount(runs)
        for step, model in models.items():
            self.assert_loads(mount / f"checkpoint-{step}", model)
        mount.unmount()


class S3(s3_case.Case, Models):
    def setUp(self):
        s3_case.Case.setUp(self)
        Models.setUp(self)

    def test_a_prefix(self):
        for name, data in files_of(self.folder).items():
            self.put(f"repository/{name}", data)
        mount = self.mount("s3://models/repository/", env=self.somebody())
        self.assert_loads(mount.path)
        mount.unmount()
