"""ckpt show, stat and diff: the values of tensors, compared with NumPy and torch."""

import json

import ckptfs
from ckpt_case import ckpt

try:
    import gguf
    import numpy
    import torch
except ImportError as error:
    numpy = None
    MISSING = str(error)


class Values(ckptfs.Case):
    """show, stat and diff, compared with NumPy and torch."""

    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.directory = self.scratch()
        self.random = numpy.random.default_rng(1)

    def save(self, name, tensors):
        file = self.directory / name
        torch.save(tensors, file)
        return file

    def array(self, dtype, shape, scale):
        """A random array, sometimes with NaN and infinities."""
        values = self.random.standard_normal(shape) * scale
        if dtype == "?":
            return numpy.asarray(values > 0)
        if dtype[0] in "iu":
            return numpy.asarray(self.random.integers(0, 100, shape)).astype(dtype)
        if dtype[0] == "c":
            values = values + 1j * self.random.standard_normal(shape)
        with numpy.errstate(over="ignore"):
            array = numpy.asarray(values).astype(dtype)
        if dtype[0] == "f" and array.size > 4 and self.random.random() < 0.3:
            array.flat[1], array.flat[3] = numpy.nan, -numpy.inf
        return array

    def test_show_prints_as_numpy(self):
        arrays = {}
        for dtype in "f4 f8 f2 i1 u1 i4 i8 ? c8 c16".split():
            for shape in (), (1,), (3, 4), (30,), (2, 3, 4), (1000,), (1001,), (40, 50), (7, 8, 30), (0, 3):
                for scale in (1, 1e-5, 1e10) if dtype[0] == "f" else (1,):
                    arrays[f"t{len(arrays)}"] = self.array(dtype, shape, scale)
        file = self.save("arrays.pth", {key: torch.from_numpy(array.copy()) for key, array in arrays.items()})
        for key, array in arrays.items():
            done = ckpt("show", file, key)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with numpy.errstate(over="ignore"):
                wanted = numpy.array2string(array)
            self.assertEqual(done.stdout.split("\n", 1)[1][:len(wanted) + 1], wanted + "\n", array.dtype)

    def test_show_of_a_slice(self):
        file = self.save("x.pth", {"x": torch.arange(12.).reshape(3, 4)})
        self.assertEqual(ckpt("show", file, "x[1:, ::2]").stdout.splitlines()[1:4], [
            "[[ 4.  6.]", " [ 8. 10.]]", "min 4  max 10  mean 7  deviation 2.23607"])

    def test_show_refuses_what_is_no_number(self):
        file = self.save("q.pth", {"x": torch.zeros(4, dtype=torch.uint8).view(torch.bits8)})
        done = ckpt("show", file, "x")
        self.assertEqual((done.returncode, done.stderr),
                         (ckptfs.FORMAT, "ckpt: 'x': ckpt does not decode bits8\n"))

    def stat(self, file, *options):
        done = ckpt("stat", "--json", *options, file)
        return done.returncode, {row["key"]: row for row in json.loads(done.stdout)}

    def test_stat_of_all_dtypes(self):
        tensors = {}
        for name in ("float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
                     "uint8 int8 int16 int32 int64 uint16 uint32 uint64 bool").split():
            dtype = getattr(torch, name)
            for count in 0, 1, 7, 5000, 300001:
                values = torch.randn(count) * 10
                if not dtype.is_floating_point:
                    values = values.abs()
                elif count > 6:
                    values[3], values[5], values[6] = float("nan"), float("-inf"), 0
                tensors[f"{name} {count}"] = values.to(dtype)
        for name in "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split():
            tensors[name] = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
        tensors["float16"] = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)
        tensors["transposed"] = torch.randn(50, 60).T
        tensors["extremes"] = torch.tensor([-2**63, 2**63 - 1])
        status, rows = self.stat(self.save("all.pth", tensors))
        self.assertEqual(status, 0)
        for key, tensor in tensors.items():
            row = rows[key]
            is_narrow = tensor.is_floating_point() and tensor.itemsize <= 2
            array = (tensor.float() if is_narrow else tensor).numpy()
            finite = array[numpy.isfinite(array)]
            self.assertEqual((row["count"], row["nans"], row["infinities"], row["zeros"]),
                             (array.size, numpy.isnan(array).sum(), numpy.isinf(array).sum(), (finite == 0).sum()), key)
            if finite.size == 0:
                self.assertIsNone(row["min"], key)
                continue
            self.assertEqual((row["min"], row["max"]), (finite.min().item(), finite.max().item()), key)
            finite = finite.astype("f8")
            numpy.testing.assert_allclose((row["mean"], row["deviation"]), (finite.mean(), finite.std()),
                                          rtol=1e-9, atol=1e-9, err_msg=key)

    def test_deviation_of_values_that_are_close_together(self):
        """Sums of squares would lose the digits of it, or overflow."""
        noise = self.random.standard_normal(300001)
        arrays = {"far": 1e6 + noise, "ones": 1 + noise / 1000, "equal": numpy.full(5000, 0.1), "one": numpy.array([0.3]),
                  "half": (1000 + noise).astype("f2"), "float": (1e4 + noise).astype("f4"),
                  "int": 2**40 + self.random.integers(0, 100, 5000),
                  "huge": 1e160 * (1 + noise * 1e-10), "late": numpy.concatenate([noise, 1e3 + noise])}
        status, rows = self.stat(self.save("close.pth", {key: torch.from_numpy(a) for key, a in arrays.items()}))
        self.assertEqual(status, 0)
        for key, array in arrays.items():
            wide = array.astype(numpy.longdouble)
            numpy.testing.assert_allclose(
                (rows[key]["mean"], rows[key]["deviation"]), (float(wide.mean()), float(wide.std())),
                rtol=1e-7, atol=1e-12, err_msg=key)

    def test_stat_check(self):
        file = self.save("x.pth", {"a": torch.tensor([1., float("nan")]), "b": torch.ones(2)})
        self.assertEqual([ckpt("stat", "--check", file, *pattern).returncode for pattern in ([], ["b"])], [1, 0])
        self.assertEqual(ckpt("stat", file).returncode, 0)

    def test_diff(self):
        first = {name: torch.randn(1000).to(getattr(torch, name))
                 for name in ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn")}
        second = {}
        for name, tensor in first.items():
            values = tensor.double().clone()
            values[::3] += 0.5
            second[name] = values.to(tensor.dtype)
        unchanged = {"nan": torch.tensor([float("nan"), 1]), "t": torch.randn(5, 6).T}
        done = ckpt("diff", "--json", self.save("a.pth", first | unchanged), self.save("b.pth", second | unchanged))
        rows = {row["key"]: row for row in json.loads(done.stdout)}
        self.assertEqual((done.returncode, set(rows)), (1, set(first)))
        for key, row in rows.items():
            a, b = first[key].double(), second[key].double()
            self.assertEqual((row["change"], row["elements"], row["differing"]), ("values", 1000, (a != b).sum().item()))
            larger = torch.maximum(a.abs(), b.abs())
            relative = ((a - b).abs() / larger)[larger > 0].max().item()
            numpy.testing.assert_allclose((row["max_absolute"], row["max_relative"], row["cosine"]),
                                          ((a - b).abs().max(), relative, a @ b / (a.norm() * b.norm())), rtol=1e-9)

    def test_diff_of_headers(self):
        a = self.save("a.pth", {"same": torch.ones(2), "shape": torch.ones(3), "gone": torch.ones(1),
                                "half": torch.ones(2).half(), "wide": torch.tensor([2**62])})
        b = self.save("b.pth", {"same": torch.ones(2), "shape": torch.ones(3, 1), "new": torch.ones(1),
                                "half": torch.ones(2), "wide": torch.tensor([2**62 + 1])})
        changes = {row["key"]: (row["change"], row.get("differing")) for row in
                   json.loads(ckpt("diff", "--json", a, b).stdout)}
        self.assertEqual(changes, {"shape": ("shape", None), "gone": ("only in the first", None),
                                   "new": ("only in the second", None), "half": ("dtype", 0), "wide": ("values", 1)})

    def test_diff_ends_as_diff(self):
        a = self.save("a.pth", {"model": {"x": torch.ones(2)}})
        b = self.save("b.pth", {"x": torch.ones(2) + 0.25})
        for status, arguments in ((0, (a, a)), (1, (a, b)), (1, (a, b, "--map", r"s/^model\.//")),
                                  (0, (a, b, "--map", r"s/^model\.//", "--tolerance", "0.25")),
                                  (2, (a, self.directory / "none")), (2, (a, b, "--map", "s/(/x/")), (2, (a,))):
            self.assertEqual(ckpt("diff", *arguments).returncode, status, arguments)

    def write_blocks(self, name, endianess=None):
        """Writes random blocks of all types that gguf decodes; returns the file, the types and the elements."""
        types = [t for t in gguf.quants._type_traits if t.name not in ("F32", "F16", "BF16")]
        file = self.directory / name
        writer = gguf.GGUFWriter(file, "test", **({} if endianess is None else {"endianess": endianess}))
        arrays = {}
        for dtype in types:
            size = gguf.GGML_QUANT_SIZES[dtype][1]
            rows = self.random.integers(0, 256, (7, size * 5), numpy.uint8)
            writer.add_tensor(dtype.name, rows, raw_dtype=dtype)
            with numpy.errstate(all="ignore"):
                arrays[dtype.name] = gguf.dequantize(rows, dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file, arrays

    def test_blocks_of_gguf(self):
        file, arrays = self.write_blocks("model.gguf")
        numpy.savez(self.directory / "floats.npz", **arrays)
        tables = {name for name in arrays if name[:3] in ("IQ1", "IQ2", "IQ3")}
        self.assertGreaterEqual(len(arrays) - len(tables), 15)
        done = ckpt("diff", "--json", self.directory / "floats.npz", file)
        self.assertEqual(done.stderr, "")
        changes = {change["key"]: change for change in json.loads(done.stdout)}
        figures = {row["key"]: row for row in json.loads(ckpt("stat", "--json", file).stdout)}
        self.assertEqual(set(figures), set(arrays))
        for name, array in arrays.items():
            change = changes[name]
            if name in tables:
                self.assertEqual((change["change"], figures[name]["min"]), ("shape", None))
                self.assertEqual(ckpt("show", file, name).stderr,
                                 f"ckpt: '{name}': ckpt does not decode {name}\n")
                continue
            self.assertEqual((change["change"], change["second"]["dtype"], change["differing"]),
                             ("dtype", name, 0))
            row, finite = figures[name], array[numpy.isfinite(array)]
            self.assertEqual((row["dtype"], row["count"], row["nans"], row["zeros"]),
                             (name, array.size, numpy.isnan(array).sum(), (array == 0).sum()))
            self.assertEqual((numpy.float32(row["min"]), numpy.float32(row["max"])), (finite.min(), finite.max()))
            text = ckpt("show", file, f"{name}[1:3, 5::97]").stdout
            wanted = numpy.array2string(array[1:3, 5::97])
            self.assertEqual(text.split("\n", 1)[1][:len(wanted) + 1], wanted + "\n")

    def test_blocks_that_are_not_decoded(self):
        sentence = "ckpt does not decode IQ2_XXS"
        (a, _), (b, _) = self.write_blocks("a.gguf"), self.write_blocks("b.gguf")
        for arguments in ("stat", a, "IQ2_XXS"), ("diff", a, b, "IQ2_XXS"):
            self.assertEqual(ckpt(*arguments).stdout.splitlines()[1][-len(sentence):], sentence)
        change, = json.loads(ckpt("diff", "--json", a, b, "IQ2_XXS").stdout)
        self.assertEqual([change[name] for name in ("change", "max_absolute", "max_relative", "cosine")],
                         ["values", None, None, None])
        for target, name in ("npz", "NumPy"), ("gguf", "GGUF"), ("safetensors", "safetensors"), ("tensors", "tensorizer"):
            for dtype, advice in ("IQ2_XXS", sentence), ("Q4_K", "--dtype may help"):
                done = ckpt("convert", a, self.directory / "x", "--only", dtype, "--to", target)
                self.assertEqual((done.returncode, done.stderr),
                                 (4, f"ckpt: {name} has no dtype {dtype} for '{dtype}'; {advice}\n"))

    def test_blocks_of_big_endian_gguf(self):
        file, _ = self.write_blocks("model.gguf", gguf.GGUFEndian.BIG)
        for row in json.loads(ckpt("stat", "--json", file).stdout):
            self.assertIsNone(row["min"], row)

    def test_diff_of_wide_integers_is_exact(self):
        limits = numpy.iinfo(numpy.int64)
        for ours, theirs, distance in (
                ([2**60 + 127, 5], [2**60 + 129, 5], 2), ([limits.min, 0], [limits.max, 0], 2**64 - 1),
                ([2**53 + 1], numpy.array([2**53], numpy.uint64), 1), ([7, -1], numpy.array([7, 2], numpy.int32), 3)):
            numpy.save(self.directory / "a.npy", numpy.array(ours, numpy.int64))
            numpy.save(self.directory / "b.npy", numpy.asarray(theirs))
            change, = json.loads(ckpt("diff", "--json", self.directory / "a.npy", self.directory / "b.npy").stdout)
            self.assertEqual((change["differing"], change["max_absolute"]), (1, float(distance)))

    def test_quantized(self):
        quantized, floats = {}, {}
        for dtype, limits in ((torch.qint8, (-128, 127)), (torch.quint8, (0, 255)), (torch.qint32, (-2**31, 2**31 - 1))):
            for shape in (), (1,), (3, 4), (7, 300), (0, 3):
                values = torch.from_numpy(numpy.asarray(self.random.standard_normal(shape) * 50).astype(numpy.float32))
                key = f"{dtype} {shape}"
                quantized[key] = torch.quantize_per_tensor(values, 0.37, int(self.random.integers(*limits) // 2), dtype)
                floats[key] = quantized[key].dequantize()
        a, b = self.save("quantized.pth", quantized), self.save("floats.pth", floats)
        changes = json.loads(ckpt("diff", "--json", a, b).stdout)
        self.assertEqual({(row["key"], row["change"]) for row in changes}, {(key, "dtype") for key in quantized})
        for row in changes:  # torch may compute q * scale - zero_point * scale instead.
            self.assertLess(row.get("max_relative", 0), 1e-4, row)
        figures = {row["key"]: row for row in json.loads(ckpt("stat", "--json", a).stdout)}
        for key, tensor in floats.items():
            if tensor.numel():
                numpy.testing.assert_allclose([figures[key]["min"], figures[key]["max"]],
                                              [tensor.min(), tensor.max()], rtol=1e-4)
        self.assertEqual(figures["torch.qint8 (7, 300)"]["count"], 2100)
        # The same integers, and another scale.
        whole = torch.arange(-3, 3, dtype=torch.int8)
        a = self.save("a.pth", {"x": torch._make_per_tensor_quantized_tensor(whole, 0.5, 1)})
        b = self.save("b.pth", {"x": torch._make_per_tensor_quantized_tensor(whole, 0.25, 1)})
        change, = json.loads(ckpt("diff", "--json", a, b).stdout)
        self.assertEqual((change["change"], change["differing"], change["max_absolute"]), ("values", 5, 1.0))
        self.assertEqual(ckpt("show", a, "x").stdout.split("\n")[1], numpy.array2string((whole.numpy() - 1) * numpy.float32(.5)))

    def test_quantized_integers_that_share_bytes(self):
        quantized, floats = {}, {}
        for dtype, zero_point in (torch.quint4x2, 7), (torch.quint2x4, 1):
            for shape in (), (1,), (3, 5), (7, 301), (2, 3, 4), (0, 3), (300, 1001):
                key = f"{dtype} {shape}".removeprefix("torch.")
                values = torch.from_numpy(numpy.asarray(self.random.standard_normal(shape) * 2, numpy.float32))
                quantized[key] = torch.quantize_per_tensor(values, 0.5, zero_point, dtype)
                floats[key] = quantized[key].dequantize()
        a, b = self.save("quantized.pth", quantized), self.save("floats.pth", floats)
        changes = json.loads(ckpt("diff", "--json", a, b).stdout)
        self.assertEqual([(row["key"], row["change"], row.get("differing", 0)) for row in changes],
                         [(key, "dtype", 0) for key in quantized])
        figures = {row["key"]: row for row in json.loads(ckpt("stat", "--json", a).stdout)}
        for key, tensor in floats.items():
            self.assertEqual((figures[key]["count"], figures[key]["zeros"]), (tensor.numel(), (tensor == 0).sum()), key)
        wanted = numpy.array2string(floats["quint4x2 (3, 5)"].numpy()[1:, ::2])
        self.assertEqual(ckpt("show", a, "quint4x2 (3, 5)[1:, ::2]").stdout.split("\n", 1)[1][:len(wanted)], wanted)
        out = self.directory / "floats.safetensors"
        self.assertEqual(ckpt("convert", "--dtype", "float32", "--verify", a, out).returncode, 0)
        self.assertEqual(ckpt("diff", out, b).returncode, 0)

    def test_float4(self):
        codes = self.random.integers(0, 256, (3, 40), numpy.uint8)
        values = numpy.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], numpy.float32)
        wanted = values[numpy.stack([codes & 15, codes >> 4], -1).reshape(3, 80)]
        packed = self.save("packed.pth", {"x": torch.from_numpy(codes).view(torch.float4_e2m1fn_x2)})
        floats = self.save("floats.pth", {"x": torch.from_numpy(wanted)})
        change, = json.loads(ckpt("diff", "--json", packed, floats).stdout)
        self.assertEqual((change["change"], change["elements"], change["differing"]), ("dtype", 240, 0))
        self.assertEqual(ckpt("show", packed, "x[0, :3]").stdout.split("\n")[1],
                         numpy.array2string(wanted[0, :3]))
