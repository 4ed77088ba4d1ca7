"""Attacks by which pickles have run code on the machines of people who loaded them.

Each is rebuilt with a canary (canary.py), which sings when Python loads the pickle. On a mount it
is silent: it shows what is there, and tells the names that the pickle would have imported.
disguises_test.py has the files in which such pickles hide.
"""

import collections
import re

import ckptfs
import craft
from canary import A, Attack
from ckptfs import CORRUPT, FORMAT, SAMPLES
from craft import PROTO, STOP, Record, call, glob, integer, mapping, sequence, tensor, text

try:
    import torch
    import torch._dynamo.decorators  # These add to what weights_only allows.
    import torch.distributed.tensor
    import torch.nested._internal.nested_tensor
    from torch import _weights_only_unpickler
except ImportError as error:
    torch = None
    MISSING = str(error)

PROTO4 = b"\x80\x04"

# What the pickle of a plain tensor names.
GOOD_NAMES = ["collections.OrderedDict", "torch.FloatStorage", "torch._utils._rebuild_tensor_v2"]


def short(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


def attribute(owner, name):
    return call(glob("builtins", "getattr"), owner, text(name))


def imported(module):
    return call(glob("importlib", "import_module"), text(module))


class Names(Attack):
    """Functions of Python's library and of packages that run what they are given.

    Scanners have lists of names that are bad, and these have been found to be missing there.
    """

    def code(self):
        return text(f"open({str(self.canary)!r}, 'w').close()")

    def arguments(self):
        return craft.array(text("touch"), text(str(self.canary)))

    def script(self):
        path = self.folder / "script.py"
        path.write_text(f"open({str(self.canary)!r}, 'w').close()\n")
        return text(str(path))

    def test_os_system(self):
        self.assertHarmless(call(glob("os", "system"), text(self.command)), "os.system")

    def test_posix_system(self):
        self.assertHarmless(self.payload, "posix.system")

    def test_os_popen(self):
        self.assertHarmless(call(glob("os", "popen"), text(self.command)), "os.popen")

    def test_subprocess_check_call(self):
        self.assertHarmless(call(glob("subprocess", "check_call"), self.arguments()),
                            "subprocess.check_call")

    def test_subprocess_popen(self):
        self.assertHarmless(call(glob("subprocess", "Popen"), self.arguments()),
                            "subprocess.Popen")

    def test_builtins_exec(self):
        self.assertHarmless(call(glob("builtins", "exec"), self.code()), "builtins.exec")

    def test_builtins_eval_under_the_name_of_python_2(self):
        self.assertHarmless(call(glob("__builtin__", "eval"), self.code()), "builtins.eval")

    def test_builtins_compile(self):
        compiled = call(glob("builtins", "compile"), self.code(), text("x"), text("exec"))
        self.assertHarmless(call(glob("builtins", "exec"), compiled), "builtins.compile",
                            "builtins.exec")

    def test_builtins_open_which_writes(self):
        self.assertHarmless(call(glob("builtins", "open"), text(str(self.canary)), text("w")),
                            "builtins.open")

    def test_builtins_import_and_getattr(self):
        module = call(glob("builtins", "__import__"), text("os"))
        self.assertHarmless(call(attribute(module, "system"), text(self.command)),
                            "builtins.__import__", "builtins.getattr")

    def test_importlib_import_module(self):
        self.assertHarmless(call(attribute(imported("os"), "system"), text(self.command)),
                            "importlib.import_module", "builtins.getattr")

    def test_runpy_run_path(self):
        self.assertHarmless(call(glob("runpy", "run_path"), self.script()), "runpy.run_path")

    def test_runpy_run_code(self):
        compiled = call(glob("builtins", "compile"), self.code(), text("x"), text("exec"))
        self.assertHarmless(call(glob("runpy", "_run_code"), compiled, b"}"), "runpy._run_code")

    def test_operator_methodcaller(self):
        caller = call(glob("operator", "methodcaller"), text("system"), text(self.command))
        self.assertHarmless(call(caller, imported("os")), "operator.methodcaller")

    def test_functools_partial_in_its_state(self):
        # The call is not in the partial's arguments, but in what BUILD gives to it.
        state = sequence(glob("posix", "system"), sequence(text(self.command)), b"}", b"N")
        partial = call(glob("functools", "partial"), glob("builtins", "print")) + state + b"b"
        self.assertHarmless(call(partial), "functools.partial", "posix.system")

    def test_builtins_map(self):
        mapped = call(glob("builtins", "map"), glob("posix", "system"),
                      sequence(text(self.command)))
        self.assertHarmless(call(glob("builtins", "list"), mapped), "builtins.map",
                            "posix.system")

    def test_pickle_loads_of_another_pickle(self):
        inner = b"C" + bytes([len(PROTO + self.payload + STOP)]) + PROTO + self.payload + STOP
        self.assertHarmless(call(glob("_pickle", "loads"), inner), "_pickle.loads",
                            proto=b"\x80\x03")

    def test_timeit_timeit(self):
        self.assertHarmless(call(glob("timeit", "timeit"), self.code(), text("pass"),
                                 glob("time", "perf_counter"), integer(1)), "timeit.timeit")

    def test_cprofile_run(self):
        self.assertHarmless(call(glob("cProfile", "run"), self.code()), "cProfile.run")

    def test_code_interactive_interpreter(self):
        interpreter = call(glob("code", "InteractiveInterpreter"))
        self.assertHarmless(call(attribute(interpreter, "runsource"), self.code()),
                            "code.InteractiveInterpreter")

    def test_pty_spawn(self):
        self.assertHarmless(call(glob("pty", "spawn"), self.arguments()), "pty.spawn")

    def test_posixsubprocess_of_multiprocessing(self):
        path = b"C\x0a/bin/touch"
        self.assertHarmless(call(glob("multiprocessing.util", "spawnv_passfds"), path,
                                 self.arguments(), b")"),
                            "multiprocessing.util.spawnv_passfds", proto=b"\x80\x03")

    def test_uuid_get_command_stdout(self):
        self.assertHarmless(call(glob("uuid", "_get_command_stdout"), text("touch"),
                                 text(str(self.canary))), "uuid._get_command_stdout")

    def test_pydoc_pipepager(self):
        self.assertHarmless(call(glob("pydoc", "pipepager"), text("x"), text(self.command)),
                            "pydoc.pipepager")

    def test_a_submodule_of_a_blocked_module(self):
        # CVE-2025-10157: "asyncio" was blocked, and this was not.
        start = glob("asyncio.unix_events", "_UnixSubprocessTransport._start")
        transport = call(glob("types", "SimpleNamespace"))
        self.assertHarmless(
            call(start, transport, text(self.command), b"\x88", b"N", b"N", b"N", integer(0)),
            "asyncio.unix_events._UnixSubprocessTransport._start", proto=PROTO4)

    def test_pip_which_is_no_part_of_python(self):
        # CVE-2025-1716: scanners did not know pip, which runs what it installs.
        package = self.folder / "package"
        package.mkdir()
        (package / "setup.py").write_text(f"open({str(self.canary)!r}, 'w').close()\n")
        self.assertHarmless(
            call(glob("pip", "main"), craft.array(*map(text, (
                "install", "--no-index", "--no-build-isolation", "--no-deps", "--no-input",
                f"--target={self.folder / 'target'}", str(package))))), "pip.main")

    def test_subprocess_getoutput_under_the_name_of_python_2(self):
        self.assertHarmless(call(glob("commands", "getoutput"), text(self.command)),
                            "subprocess.getoutput")

    def test_bad_names_that_cannot_be_imported_here(self):
        self.craft(craft.array(*(call(glob(*name), text(self.command)) for name in (
            ("nt", "system"), ("_osx_support", "_read_output"), ("nowhere.at", "all")))))
        self.assertNames(self.show(), "nt.system", "_osx_support._read_output", "nowhere.at.all")

    def need_torch(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def test_torch_jit_exec_wrapper(self):
        self.need_torch()
        self.assertHarmless(call(glob("torch.jit.unsupported_tensor_ops", "execWrapper"),
                                 self.code(), b"}", b"}"),
                            "torch.jit.unsupported_tensor_ops.execWrapper")

    def test_torch_utils_collect_env(self):
        self.need_torch()
        self.assertHarmless(call(glob("torch.utils.collect_env", "run"), text(self.command)),
                            "torch.utils.collect_env.run")

    def test_torch_hub_of_a_local_folder(self):
        self.need_torch()
        (self.folder / "hubconf.py").write_text(
            f"def m():\n  open({str(self.canary)!r}, 'w').close()\n")
        self.assertHarmless(
            call(glob("torch.hub", "_load_local"), text(str(self.folder)), text("m")),
            "torch.hub._load_local")

    def test_numpy_runstring(self):
        self.need_torch()
        self.assertHarmless(call(glob("numpy.testing._private.utils", "runstring"), self.code(),
                                 b"}"), "numpy.testing._private.utils.runstring")


class Opcodes(Attack):
    """All the ways in which a pickle says what to call."""

    def test_a_global_from_the_stack(self):
        function = short("posix") + short("system") + b"\x93"
        self.assertHarmless(call(function, text(self.command)), "posix.system", proto=PROTO4)

    def test_a_global_from_the_stack_whose_names_come_from_the_memo(self):
        # The names are far from the opcode, among texts that mean nothing.
        names = short("system") + b"\x94" + short("x") + b"\x94" + short("posix") + b"\x94000"
        self.assertHarmless(names + call(b"h\x02h\x00\x93", text(self.command)), "posix.system",
                            proto=PROTO4)

    def test_a_global_whose_name_has_dots(self):
        function = short("os") + short("path.os.system") + b"\x93"
        self.assertHarmless(call(function, text(self.command)), "os.path.os.system", proto=PROTO4)

    def test_inst(self):
        self.assertHarmless(b"(" + text(self.command) + b"iposix\nsystem\n", "posix.system")

    def test_obj(self):
        self.assertHarmless(b"(" + glob("posix", "system") + text(self.command) + b"o",
                            "posix.system")

    def test_newobj(self):
        made = (glob("builtins", "map")
                + sequence(glob("posix", "system"), sequence(text(self.command))) + b"\x81")
        self.assertHarmless(call(glob("builtins", "list"), made), "posix.system")

    def test_newobj_ex(self):
        made = (glob("builtins", "map")
                + sequence(glob("posix", "system"), sequence(text(self.command))) + b"}\x92")
        self.assertHarmless(call(glob("builtins", "list"), made), "posix.system", proto=PROTO4)

    def namespace(self, **attributes):
        """An object on which BUILD has set these attributes."""
        return glob("types", "SimpleNamespace") + b")R" + mapping(*attributes.items()) + b"b"

    def test_a_state_that_is_given_to_a_setstate_of_the_file(self):
        evil = self.namespace(__setstate__=glob("posix", "system")) + text(self.command) + b"b"
        self.assertHarmless(evil, "posix.system")

    def test_an_append_of_the_file(self):
        evil = self.namespace(append=glob("posix", "system")) + text(self.command) + b"a"
        self.assertHarmless(evil, "posix.system")

    def test_an_extend_of_the_file(self):
        arguments = craft.array(text("touch"), text(str(self.canary)))[2:]
        evil = self.namespace(extend=glob("subprocess", "check_call")) + b"(" + arguments
        self.assertHarmless(evil, "subprocess.check_call")

    def test_an_add_of_the_file(self):
        evil = self.namespace(add=glob("posix", "system")) + b"(" + text(self.command) + b"\x90"
        self.assertHarmless(evil, "posix.system", proto=PROTO4)

    def test_a_setitem_that_replaces_a_function_of_a_module(self):
        modules = attribute(imported("json"), "__dict__")
        evil = modules + text("loads") + glob("posix", "system") + b"s0"
        self.assertHarmless(evil + call(glob("json", "loads"), text(self.command)),
                            "importlib.import_module", "posix.system", "json.loads")

    def test_a_state_that_is_given_to_a_module(self):
        evil = imported("json") + mapping(("loads", glob("posix", "system"))) + b"b0"
        self.assertHarmless(evil + call(glob("json", "loads"), text(self.command)),
                            "importlib.import_module", "posix.system", "json.loads")

    def test_an_extension_that_the_file_registers(self):
        evil = call(glob("copyreg", "add_extension"), text("posix"), text("system"),
                    integer(77)) + b"0" + call(b"\x82\x4d", text(self.command))
        self.assertSingsInPickle(PROTO + evil + STOP)
        self.craft(evil)
        self.refuse(FORMAT, "data.pkl: .*EXT1.*")

    def test_a_hook_of_a_tensor(self):
        evil = call(glob("torch._utils", "_rebuild_tensor_v2"), craft.storage("0", 6), integer(0),
                    sequence(integer(6)), sequence(integer(1)), b"\x89", self.payload)
        self.assertSingsInPickle(PROTO + self.payload + STOP)
        self.craft(evil)
        self.assertNames(self.show(), "posix.system")

    def test_a_persistent_id(self):
        evil = sequence(text("storage"), self.payload, text("0"), text("cpu"), integer(6)) + b"Q"
        self.assertSingsInPickle(PROTO + evil + STOP)
        self.craft(evil)
        self.assertNames(self.show(), "posix.system")

    def test_a_key_of_a_dict(self):
        evil = b"}" + self.payload + integer(1) + b"s"
        self.assertHarmless(evil, "posix.system")

    def test_a_value_that_is_thrown_away(self):
        self.assertHarmless(self.payload + b"0N", "posix.system")

    def test_a_call_after_which_the_pickle_is_broken(self):
        # "nullifAI": what is before the fault has run when it is found.
        evil = PROTO + self.payload + b"\xff\xff\xff"
        self.assertSingsInPickle(evil)
        craft.write_archive(self.file, [Record("data.pkl", evil), Record("data/0", A)])
        self.refuse(CORRUPT, "data.pkl: .*0xff.*")

    def test_a_call_after_which_the_pickle_ends(self):
        evil = PROTO + self.payload
        self.assertSingsInPickle(evil)
        craft.write_archive(self.file, [Record("data.pkl", evil), Record("data/0", A)])
        self.refuse(CORRUPT, "data.pkl: .*STOP.*")

    def test_a_pickle_after_the_pickle_is_not_looked_at(self):
        data = self.craft(b"N")
        craft.write_archive(self.file, [Record("data.pkl", data + PROTO + self.payload + STOP),
                                        Record("data/0", A), Record("version", b"3\n")])
        self.assertSingsInPickle(PROTO + self.payload + STOP)
        self.assertEqual(self.globals_of(self.show()), GOOD_NAMES)


class WeightsOnly(Attack):
    """The list of what torch.load(weights_only=True) takes is torch's own."""

    def test_the_list_is_that_of_torch_2_13(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        if not torch.__version__.startswith("2.13."):
            self.skip_avoidable(f"this is torch {torch.__version__}, and the list that of 2.13")
        allowed = (set(_weights_only_unpickler._get_allowed_globals())
                   | set(_weights_only_unpickler._get_user_allowed_globals()))
        refused = {"posix.system", "builtins.eval", "builtins.frozenset", "collections.defaultdict",
                   "numpy.dtype", "torch.float8_e9m9", "torch.load", "torch.Generator",
                   "torch._utils._rebuild_sparse_csr_tensor", "torch.nn.modules.linear.Linear",
                   "argparse.Namespace", "pathlib.PosixPath", "torch.storage._load_from_bytes"}
        names = [glob(*name.rpartition(".")[::2]) for name in sorted(allowed | refused)]
        craft.write_checkpoint(self.file, mapping(("a", tensor("0", [6])),
                                                  ("names", craft.array(*names))), [("0", A)])
        told = ckptfs.meta(self.show().path)["_ckptfs"]
        self.assertEqual(told["globals"], sorted(allowed | refused))
        self.assertEqual(told["globals_refused_by_weights_only"], sorted(refused))

    def test_what_it_refuses_in_each_sample_is_what_torch_refuses(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        counts = collections.Counter()
        for file in sorted((SAMPLES / "torch-2.13").glob("*.pth")):
            with self.subTest(file.name):
                named = self.named_by_torch(file)
                counts[named and True] += 1
                if named == "":
                    self.assertEqual(self.refused(file), [])
                elif named:
                    refused = [name.removeprefix("builtins.") for name in self.refused(file)]
                    self.assertIn(named, refused)
        self.assertGreater(counts[True], 3)
        self.assertGreater(counts[""], 10)

    def named_by_torch(self, file):
        """The global for which torch refuses a file, "" if it takes it, None if it is not that."""
        try:
            torch.load(file, weights_only=True)
        except Exception as error:
            named = re.search(r"GLOBAL (\S+) was not an allowed", str(error))
            return named and named[1]
        return ""

    def refused(self, file):
        told = ckptfs.meta(self.mount(file, quiet=False).path)["_ckptfs"]
        return told["globals_refused_by_weights_only"]
