"""Files that ZANJ never wrote: they cost little, and what is damaged costs itself alone."""

import errno
import io
import json
import os
import struct
import zipfile

import ckptfs
from ckptfs import CORRUPT, LIMITS
from zanj_test import Look

FORMAT = "__muutils_format__"


def npy(count=300, descr="<f4", size=4):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}"
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(
        range(256)) * (count * size // 256) + bytes(count * size % 256)


def outside(name, kind="numpy.ndarray", **more):
    return {FORMAT: f"{kind}:external", "$ref": name} | more


def array(name, count=300):
    return outside(name, shape=[count], dtype="float32", n_elements=count)


def archive(data, members=(), method=zipfile.ZIP_DEFLATED, meta=b"{}"):
    """A file of ZANJ; `data` is the object or its JSON."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as written:
        if meta is not None:
            written.writestr("__zanj_meta__.json", meta)
        text = data if isinstance(data, (bytes, str)) else json.dumps(data)
        written.writestr("__zanj__.json", text)
        for name, content in dict(members).items():
            written.writestr(name, content)
    return file.getvalue()


class Hostile(ckptfs.Case):
    def file(self, data, *args, **options):
        path = self.scratch() / "x.zanj"
        path.write_bytes(data if args == ("raw",) else archive(data, *args, **options))
        return path

    def refuse(self, code, sentence, file):
        found, said, _ = self.assertBounded(file)
        self.assertEqual((found, said), (code, f"ckptfs: {file}: {sentence}\n"))

    def look(self, file, said=""):
        """Mounts within bounds; returns the mount point and what is there that can be read."""
        code, warned, mountpoint = self.assertBounded(file)
        self.assertEqual((code, warned), (0, said and f"ckptfs: warning: {file}: {said}\n"))
        return mountpoint

    def test_a_reference_without_a_member_costs_that_array(self):
        file = self.file({"lost": array("lost.npy"), "there": array("there.npy")},
                         {"there.npy": npy()})
        mount = self.look(file, "tensor 'lost': no such member: 'lost.npy': reading it will fail")
        self.assertErrno(errno.EIO, ckptfs.read, mount / "lost.memmap")
        self.assertEqual(os.stat(mount / "lost.memmap").st_size, 1200)
        self.assertEqual(ckptfs.read(mount / "there.memmap"), npy()[128:])

    def test_a_member_that_is_too_short_costs_that_array(self):
        file = self.file({"cut": array("cut.npy"), "there": array("there.npy")},
                         {"cut.npy": npy()[:-1], "there.npy": npy()})
        mount = self.look(file, "tensor 'cut': has 1199 bytes, but its 300 elements need 1200: "
                                "reading it will fail")
        self.assertErrno(errno.EIO, ckptfs.read, mount / "cut.memmap")
        self.assertEqual(ckptfs.read(mount / "there.memmap"), npy()[128:])

    def test_a_member_that_a_failed_save_left_costs_that_array(self):
        header = npy(0, "|O")
        file = self.file({"x": array("x.npy")}, {"x.npy": header})
        self.look(file, "tensor 'x': its elements are pickled Python objects, which ckptfs never unpickles: "
                        "reading it will fail")

    def test_a_damaged_stream_costs_that_array_when_it_is_read(self):
        data = bytearray(archive({"a": array("a.npy"), "b": array("b.npy")},
                                 {"a.npy": npy(), "b.npy": npy()}, zipfile.ZIP_STORED))
        damaged = zipfile.ZipFile(io.BytesIO(archive(
            {"a": array("a.npy"), "b": array("b.npy")}, {"a.npy": npy(), "b.npy": npy()})))
        place = damaged.getinfo("a.npy").header_offset + 30 + len("a.npy") + 300
        data = bytearray(damaged.fp.getvalue())
        data[place] ^= 0xFF
        mount = self.mount(self.file(bytes(data), "raw"), quiet=False)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "a.memmap")
        self.assertEqual(ckptfs.read(mount / "b.memmap"), npy()[128:])

    def test_a_table_with_fewer_rows_than_it_should_have(self):
        frame = outside("t.jsonl", "pandas.DataFrame", columns=["a"], **{"len(data)": 2})
        mount = self.look(self.file({"t": frame, "n": 1}, {"t.jsonl": '{"a": 1}\n'}),
                          "table 't': has 1 rows, but should have 2: reading it will fail")
        self.assertErrno(errno.EIO, ckptfs.read, mount / "t.jsonl")
        self.assertEqual(ckptfs.meta(mount / "n")["data"], 1)

    def test_a_table_that_is_not_there(self):
        mount = self.look(self.file({"t": outside("t.jsonl", "list"), "n": 1}),
                          "table 't': no such member: 't.jsonl': reading it will fail")
        self.assertEqual(ckptfs.meta(mount / "t")["data"],
                         {"class": "list", "error": "no such member: 't.jsonl'"})

    def test_rows_that_are_no_json_stay_lines(self):
        file = self.file({"t": outside("t.jsonl", "list"), "n": 1}, {"t.jsonl": '{"a": 1\n'})
        mount = self.look(file, "table 't': t.jsonl: invalid JSON at byte 8: unexpected end of text: "
                                "arrays in its rows are ignored")
        self.assertEqual(ckptfs.read(mount / "t.jsonl"), b'{"a": 1\n')

    def test_rows_that_contain_themselves(self):
        row = json.dumps({"again": outside("t.jsonl", "list"), "a": array("a.npy")}) + "\n"
        mount = self.look(self.file({"t": outside("t.jsonl", "list")},
                                    {"t.jsonl": row, "a.npy": npy()}))
        self.assertEqual(ckptfs.read(mount / "t" / "0" / "again.jsonl"), row.encode())
        self.assertEqual(ckptfs.read(mount / "t" / "0" / "a.memmap"), npy()[128:])

    def test_rows_that_share_rows_to_an_exponential_number(self):
        members = {f"{i}.jsonl": (json.dumps(outside(f"{i + 1}.jsonl", "list")) + "\n") * 10
                   for i in range(60)} | {"60.jsonl": json.dumps(array("a.npy")), "a.npy": npy()}
        self.look(self.file({"t": outside("0.jsonl", "list")}, members))

    def test_data_that_are_outside_again_and_again(self):
        members = {f"{i}.jsonl": (json.dumps(outside(f"{i + 1}.jsonl", "list")) + "\n") * 30
                   for i in range(60)}
        data = {FORMAT: "numpy.ndarray:array_list_meta", "data": outside("0.jsonl", "list"),
                "shape": [30] * 60, "dtype": "float32"}
        code, said, _ = self.assertBounded(self.file({"x": data}, members))
        self.assertIn(code, (0, LIMITS), said)

    def test_references_that_leave_the_archive_find_nothing(self):
        file = self.file({"x": array("../../../../etc/passwd")})
        self.look(file, "tensor 'x': no such member: '../../../../etc/passwd': "
                        "reading it will fail")

    def test_json_that_deflates_to_nothing(self):
        file = self.file(b"[" + b" " * (100 << 20) + b"1]")
        code, said, _ = self.assertBounded(file)
        self.assertEqual(code, LIMITS, said)
        self.assertRegex(said, r"__zanj__.json: has 104857603 bytes of JSON, but only \d+ more may "
                               r"be read of a file of this size\n\Z")

    def test_a_text_that_deflates_to_nothing(self):
        code, said, _ = self.assertBounded(self.file(b'["' + b"x" * (60 << 20) + b'"]'))
        self.assertEqual(code, LIMITS, said)

    def test_a_million_lists(self):
        code, said, _ = self.assertBounded(self.file(b"[" + b"[]," * 1_000_000 + b"1]"))
        self.assertIn(code, (0, LIMITS), said)

    def test_depth_that_python_does_not_reach(self):
        self.refuse(LIMITS, "__zanj__.json: is nested more than 1000 deep",
                    self.file(b"[" * 1_000_000))

    def test_a_thousand_levels_with_an_array_at_the_end(self):
        text = '{"a":' * 990 + json.dumps(
            {FORMAT: "numpy.ndarray:zero_dim", "data": 1, "shape": [], "dtype": "int64"})
        self.look(self.file(text + "}" * 990))

    def test_text_that_is_no_json(self):
        self.refuse(CORRUPT, "__zanj__.json: invalid JSON at byte 0, near 'P'", self.file("Python"))

    def test_damaged_metadata_cost_themselves_alone(self):
        mount = self.look(self.file({"n": 1}, meta=b"{"),
                          "__zanj_meta__.json: invalid JSON at byte 1: unexpected end of text: "
                          "the metadata are ignored")
        self.assertEqual(ckptfs.meta(mount / "n")["data"], 1)

    def test_a_file_without_metadata(self):
        mount = self.look(self.file({"n": 1}, meta=None))
        self.assertEqual(Look(mount).values, {"n": 1})

    def test_a_file_that_was_cut_off(self):
        whole = archive({"a": array("a.npy")}, {"a.npy": npy()})
        code, said, _ = self.assertBounded(self.file(whole[:-30], "raw"))
        self.assertEqual(code, CORRUPT, said)

    def test_an_array_larger_than_all_memory(self):
        data = {FORMAT: "numpy.ndarray:array_list_meta", "data": [1.0], "shape": [1 << 40],
                "dtype": "float32"}
        self.look(self.file({"x": data}), "tensor 'x': a list of its data has 1 items, but its "
                                          "shape needs 1099511627776: reading it will fail")

    def test_a_shape_whose_size_is_no_number(self):
        data = {FORMAT: "numpy.ndarray:array_list_meta", "data": [1.0], "shape": [1 << 40] * 3,
                "dtype": "float32"}
        self.look(self.file({"x": data}), "tensor 'x': its shape has more than 2^64 elements: "
                                          "reading it will fail")

    def test_many_arrays_in_one_member(self):
        mount = self.look(self.file({f"x{i}": array("a.npy") for i in range(1000)},
                                    {"a.npy": npy()}))
        self.assertEqual(os.stat(mount / "x0.memmap").st_nlink, 1000)

    def test_keys_that_are_no_names(self):
        mount = self.look(self.file('{"a":1,"a":2,"..":3,"":4,"a/b":5,"\\ud800":6,"x\\u0000y":7}'))
        self.assertEqual(Look(mount).values,
                         {"a": 2, "..": 3, "": 4, "a/b": 5, "\ud800": 6, "x\x00y": 7})
