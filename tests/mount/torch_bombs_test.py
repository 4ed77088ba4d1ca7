"""Small files of PyTorch's other containers that would cost a reader its memory or its time.

torch.export, AOTInductor, TorchScript, torch.package, the legacy stream and the legacy tar archive
have tables and pickles of their own beside the object. As in bombs_test.py, each file is mounted or
refused within the limits.
"""

import io
import json
import struct
import tarfile
import warnings
import zipfile

from bombs_test import PROTO4, Bomb, get, put
from canary import A
from craft import (PROTO, STOP, Record, array, call, glob, integer, sequence, storage,
                   tensor, text, write_archive)
from legacy_test import MAGIC, SYSTEM, VERSION, keys, stored


def laughs(levels=60, first=text("ha")):
    """A tuple of the same tuple twice, of the same tuple twice, ..."""
    return first + put(0) + b"".join(get(i) + get(i) + b"\x86" + put(i + 1) for i in range(levels))


def big_integers(count, size=4_000):
    """A list of the same integer of so many bytes, which takes long to write."""
    number = b"\x8b" + struct.pack("<I", size) + b"\xa5" * (size - 1) + b"\x5a"
    return number + put(0) + b"0" + array(*[get(0)] * count)


def deep(levels):
    return b"N" + b"\x85" * levels


def pickle(opcodes, proto=PROTO):
    return proto + opcodes + STOP


class Pt2(Bomb):
    """torch.export and AOTInductor."""

    def write(self, *records, **more):
        write_archive(self.file, [Record("archive_format", b"pt2"), Record("byteorder", b"little"),
                                  *records, Record("version", b"3\n")], **more)
        self.survive(self.file)

    def config(self, table, *records, deflate=True, name="data/weights/model_weights_config.json"):
        data = table if not isinstance(table, (str, dict)) else (
            table if isinstance(table, str) else json.dumps(table)).encode()
        self.write(*records, Record(name, data, deflate=deflate))

    def entry(self, record="weight_0", sizes=(), strides=(), dtype=7, pickled=False, **more):
        return {"path_name": record, "is_param": True, "use_pickle": pickled, "tensor_meta": {
            "dtype": dtype, "layout": 7, "requires_grad": False, "device": {"type": "cpu"},
            "sizes": [{"as_int": n} for n in sizes], "strides": [{"as_int": n} for n in strides],
            "storage_offset": {"as_int": 0}, **more}}

    def test_a_graph_of_nested_lists(self):
        graph = b"[" * 2_000_000
        self.write(Record("models/model.json", graph, deflate=True),
                   Record("data/weights/model_weights_config.json", b'{"config":{}}'))

    def test_a_table_of_nested_objects(self):
        self.config('{"config":' + '{"a":' * 200_000 + "1" + "}" * 200_001)

    def test_a_table_with_lists_where_texts_belong(self):
        entry = self.entry()
        entry["path_name"] = [[[["weight_0"] * 10] * 10] * 10] * 10
        self.config({"config": {str(i): entry for i in range(20)}}, Record("data/weights/weight_0", A))

    def test_one_key_many_times(self):
        entry = json.dumps(self.entry(sizes=[6], strides=[1]))
        self.config('{"config":{' + ",".join(f'"w":{entry}' for _ in range(30_000)) + "}}",
                    Record("data/weights/weight_0", A))

    def test_shapes_of_exabytes(self):
        entry = self.entry(sizes=[2**62, 2**62], strides=[2**62, 1])
        self.config({"config": {str(i): entry for i in range(20_000)}},
                    Record("data/weights/weight_0", A))

    def test_shapes_of_many_dimensions(self):
        entry = self.entry(sizes=[1] * 64, strides=[2**40] * 64)
        self.config({"config": {f"w{i}": entry for i in range(2_000)}},
                    Record("data/weights/weight_0", A))

    def test_shapes_of_one_dimension_too_many(self):
        self.config({"config": {"w": self.entry(sizes=[1] * 1_000_000)}},
                    Record("data/weights/weight_0", A))

    def test_numbers_of_many_digits(self):
        self.config('{"config":{"w":{"tensor_meta":{"dtype":' + "9" * 20_000_000 + "}}}}")

    def test_names_of_control_characters(self):
        entry = json.dumps(self.entry(sizes=[6], strides=[1]))
        self.config('{"config":{' + ",".join(
            f'"{i}' + "\\u0001" * 1_000 + f'":{entry}' for i in range(3_000)) + "}}",
            Record("data/weights/weight_0", A))

    def test_names_of_many_dots(self):
        entry = json.dumps(self.entry(sizes=[6], strides=[1]))
        self.config('{"config":{' + ",".join(
            f'"{i}' + ".a" * 500 + f'":{entry}' for i in range(3_000)) + "}}",
            Record("data/weights/weight_0", A))

    def test_one_pickle_for_many_tensors(self):
        # What does not load is looked at for each of them.
        bomb = pickle(laughs(16))
        self.config({"config": {f"w{i}": self.entry("weight_0", pickled=True)
                                for i in range(5_000)}}, Record("data/weights/weight_0", bomb))

    def test_one_deflated_pickle_for_many_tensors(self):
        self.config({"config": {f"w{i}": self.entry("weight_0", pickled=True)
                                for i in range(5_000)}},
                    Record("data/weights/weight_0", PROTO + b"N0" * 2_000_000, deflate=True))

    def test_one_archive_for_many_tensors(self):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr("a/data.pkl", pickle(tensor("0", [6])))
            archive.writestr("a/data/0", A)
            for i in range(300):
                archive.writestr(f"a/x/{i}", b"")
        self.config({"config": {f"w{i}": self.entry("weight_0", pickled=True)
                                for i in range(10_000)}},
                    Record("data/weights/weight_0", inner.getvalue()))

    def test_an_archive_in_itself(self):
        inner = b""
        for _ in range(20):
            table = {"config": {f"w{i}": self.entry("weight_0", pickled=True) for i in range(20)}}
            write_archive(self.file, [
                Record("archive_format", b"pt2"), Record("data/weights/weight_0", inner),
                Record("data/weights/m_weights_config.json", json.dumps(table).encode())])
            inner = self.file.read_bytes()
        self.survive(self.file)

    def test_many_models_of_one_table(self):
        table = json.dumps({"config": {f"w{i}": self.entry(sizes=[6], strides=[1])
                                       for i in range(100)}}).encode()
        self.write(*[Record(f"data/weights/m{i}_weights_config.json", table, deflate=True)
                     for i in range(1_500)], Record("data/weights/weight_0", A))

    def test_weights_of_aotinductor_that_are_missing(self):
        table = {f"w{i}": ["x" * 200, [6], [1], 0] for i in range(30_000)}
        self.config(table, name="data/aotinductor/m/weights_config.json")

    def test_weights_of_aotinductor_that_are_bombs(self):
        table = {f"w{i}": [f"weight_{i}", [6], [1], 0] for i in range(1_000)}
        bomb = pickle(laughs(20))
        self.config(table, *[Record(f"data/weights/weight_{i}", bomb) for i in range(1_000)],
                    name="data/aotinductor/m/weights_config.json")

    def test_a_table_of_aotinductor_of_nested_lists(self):
        self.config('{"w":["r",' + "[" * 1_000_000, name="data/aotinductor/m/weights_config.json")

    def test_extra_files_of_blanks(self):
        self.write(Record("data/weights/model_weights_config.json", b'{"config":{}}'),
                   *[Record(f"extra/{i}", b"\1" * 900_000, deflate=True) for i in range(50)])

    def test_extra_files_by_the_thousand(self):
        self.write(Record("data/weights/model_weights_config.json", b'{"config":{}}'),
                   *[Record(f"extra/{'d/' * 30}{i}") for i in range(1_000)])


class ManyRecords(Bomb):
    """An archive with thousands of records, or of entries for the same record."""

    def write(self, count, names, data, *first):
        """Writes `count` records, each with the same deflated data; `names` has a place for a number."""
        with zipfile.ZipFile(self.file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, payload in first:
                archive.writestr(name, payload)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # One name many times.
                for i in range(count):
                    archive.writestr(names % i if "%" in names else names, data)
        self.survive(self.file)

    def test_entries_of_one_name(self):
        self.write(8_000, "p/x.pkl", pickle(b"N"), ("p/.data/extern_modules", b""))

    def test_pickles_of_a_package(self):
        self.write(6_000, "p/%d.pkl", pickle(big_integers(100)), ("p/.data/extern_modules", b""))

    def test_pickles_of_a_package_that_do_not_end(self):
        self.write(6_000, "p/%d.pkl", PROTO + b"N0" * 10_000, ("p/.data/extern_modules", b""))

    def test_extra_files_of_a_script(self):
        self.write(5_000, "s/extra/%d", b"\1" * 10_000, ("s/data.pkl", pickle(b"N")),
                   ("s/constants.pkl", pickle(b")")), ("s/code/x.py", b""))

    def test_weights_of_a_compiled_model(self):
        self.write(5_000, "m/data/weights/w%d", pickle(laughs(10)), ("m/archive_format", b"pt2"),
                   ("m/data/aotinductor/m/x.so", b""))

    def test_tables_of_an_export(self):
        table = json.dumps({"config": {"w" * 1_000: {"path_name": "x" * 1_000}}}).encode()
        self.write(4_000, "m/data/weights/%d_weights_config.json", table,
                   ("m/archive_format", b"pt2"))

    def test_two_entries_for_the_same_bytes(self):
        """The second name is in the central directory alone."""
        self.write(1, "p/0.pkl", pickle(big_integers(100)), ("p/.data/extern_modules", b""))
        data = self.file.read_bytes()
        at, end = data.rindex(b"PK\1\2"), data.rindex(b"PK\5\6")
        entries = [data[at:end].replace(b"p/0.pkl", b"p/%d.pkl" % i) for i in range(10)] * 1_000
        first = data.index(b"PK\1\2")
        directory = data[first:at] + b"".join(entries)
        self.file.write_bytes(data[:first] + directory + struct.pack(
            "<4s4H2IH", b"PK\5\6", 0, 0, len(entries) + 1, len(entries) + 1, len(directory), first,
            0))
        self.survive(self.file)


class Container(Bomb):
    """Writes each container that has a pickle."""

    def package(self, *pickles):
        write_archive(self.file, [*[Record(f"p{i}/m.pkl", data, deflate=True)
                                    for i, data in enumerate(pickles)],
                                  Record(".data/0.storage", A), Record(".data/extern_modules")])
        self.survive(self.file)

    def stream(self, objects, names=(), payload=b""):
        self.file.write_bytes(MAGIC + VERSION + SYSTEM + objects + keys(*names) + payload)
        self.survive(self.file)

    def tar(self, **members):
        members = {"sys_info": SYSTEM, "pickle": pickle(b"N"), "tensors": pickle(integer(0)),
                   "storages": pickle(integer(0)) + pickle(b"]")} | members
        with tarfile.open(self.file, "w") as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        self.survive(self.file)


class Pickles(Container):
    """The same objects in each container."""

    def assertAllSurvive(self, opcodes, proto=PROTO):
        data = pickle(opcodes, proto)
        with self.subTest("package"):
            self.package(*[data] * 10)
        with self.subTest("stream"):
            self.stream(data)
        with self.subTest("keys of a stream"):
            self.file.write_bytes(MAGIC + VERSION + SYSTEM + pickle(b"N") + data)
            self.survive(self.file)
        with self.subTest("tar"):
            self.tar(pickle=data)
        with self.subTest("tensors of a tar"):
            self.tar(tensors=pickle(integer(1)) + data)

    def test_tuples_of_the_same_tuple_twice(self):
        self.assertAllSurvive(laughs())

    def test_integers_of_four_thousand_bytes(self):
        self.assertAllSurvive(big_integers(3_000))

    def test_tuples_a_hundred_thousand_deep(self):
        self.assertAllSurvive(deep(100_000))

    def test_bytes_that_are_decoded_again_and_again(self):
        self.assertAllSurvive(text("\x80" * 20_000) + put(0) + b"0" + array(
            *[call(glob("_codecs", "encode"), get(0), text("latin1"))] * 1_000))

    def test_storages_of_one_long_key(self):
        key = text("k" * 30_000) + put(0) + b"0"
        ids = [storage("", 6).replace(text(""), get(0)) for _ in range(500)]
        self.stream(pickle(key + array(*ids)))
        one = tensor("", [6]).replace(text(""), get(0))
        self.assertAllSurvive(key + array(*[one] * 200))

    def test_storages_of_one_long_place(self):
        place = text("p" * 30_000) + put(0) + b"0"
        self.assertAllSurvive(place + array(*[tensor("0", [6]).replace(text("cpu"), get(0))] * 200))

    def test_half_a_million_values(self):
        self.assertAllSurvive(b"](" + b"N" * 500_000 + b"e")

    def test_half_a_million_memo_entries(self):
        self.assertAllSurvive(b"N" + b"\x94" * 500_000, PROTO4)


class Streams(Container):
    """Parts of the legacy formats beside their pickles."""

    def test_very_many_keys(self):
        self.file.write_bytes(MAGIC + VERSION + SYSTEM + pickle(b"N") + keys(
            *map(str, range(60_000))))
        self.survive(self.file)

    def test_keys_that_are_one_text(self):
        for size, count in (30_000, 6_500), (500_000, 80_000):
            name = text("k" * size) + put(0) + b"0"
            self.file.write_bytes(MAGIC + VERSION + SYSTEM + pickle(b"N") + pickle(
                name + array(*[get(0)] * count)))
            self.survive(self.file)

    def test_keys_that_begin_alike(self):
        self.file.write_bytes(MAGIC + VERSION + SYSTEM + pickle(b"N") + keys(
            *("k" * 100 + str(i) for i in range(9_000))))
        self.survive(self.file)

    def test_many_streams_of_laughs(self):
        one = MAGIC + VERSION + SYSTEM + pickle(laughs(12)) + keys()
        self.file.write_bytes(one * 500)
        self.survive(self.file)

    def test_storages_of_exabytes(self):
        # Of one id, but 5,000 tensors.
        one = tensor("0", [6], 2**60)
        self.stream(pickle(one + put(0) + b"0" + array(*[get(0)] * 5_000)), ["0"], stored(6, A))

    def test_tensors_in_a_tar_by_the_thousand(self):
        one = (pickle(sequence(integer(0), b"N", b"N")) + struct.pack("<i4x", 64)
               + struct.pack("<q", 2**60) * 128 + struct.pack("<q", 0))
        self.tar(tensors=pickle(integer(900)) + one * 900)

    def test_views_in_a_tar_by_the_thousand(self):
        first = pickle(sequence(integer(0), text("cpu"), glob("torch", "FloatStorage")))
        views = (sequence(integer(i), integer(0), integer(0), integer(0)) for i in range(1, 70_000))
        self.tar(storages=pickle(integer(1)) + first + struct.pack("<q", 0)
                 + pickle(array(*views)))

    def test_a_tar_of_ten_thousand_members(self):
        with tarfile.open(self.file, "w", format=tarfile.USTAR_FORMAT) as archive:
            archive.addfile(tarfile.TarInfo("sys_info"))
            for i in range(1_900):
                archive.addfile(tarfile.TarInfo(f"{i}/" + "d/" * 40))
        self.survive(self.file)

    def test_a_tar_of_long_names(self):
        with tarfile.open(self.file, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(tarfile.TarInfo("sys_info"))
            for i in range(100):
                archive.addfile(tarfile.TarInfo(f"{i}/" + "d/" * 4_000))
        self.survive(self.file)
