"""save and load: round trips, sharing, atomic writing, damaged files, and what is refused."""
from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import rushlight as rl
from rushlight import nn
from rushlight.serialization import DamagedFileError

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def through(obj, **kw):
    buffer = io.BytesIO()
    rl.save(obj, buffer)
    buffer.seek(0)
    return rl.load(buffer, **kw)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_round_trip_of_dtypes(name, shape):
    t = rl.tensor(np.arange(int(np.prod(shape))).reshape(shape).tolist()).reshape(shape).to(getattr(rl, name))
    got = through(t)
    assert got.dtype == t.dtype and got.shape == t.shape and got.tolist() == t.tolist()


def test_round_trip_of_containers():
    obj = {"a": [1, -2, 3.5, True, None, 2**40, -2**70, 2**3000, "text é", b"\x00\xff", float("inf")], ("k", 1): {"nested": (1, (2,), ())}, 7: {1, 2},
           "size": rl.Size([2, 3]), "dtype": rl.float16, "device": rl.device("cpu"), "ordered": OrderedDict(x=1, y=2), "counter": Counter("abca"),
           "bytes": bytearray(b"xyz"), "complex": 1 + 2j, "empty": [[], {}, ()]}
    got = through(obj)
    assert got == obj and type(got["ordered"]) is OrderedDict and type(got["size"]) is rl.Size and type(got["counter"]) is Counter


def test_long_lists_and_the_memo():
    shared = ["again"]
    got = through([shared, shared, list(range(5000)), {i: i for i in range(3000)}])
    assert got[0] is got[1] and got[2] == list(range(5000)) and len(got[3]) == 3000


def test_a_list_that_holds_itself():
    cycle = [1]
    cycle.append(cycle)
    got = through(cycle)
    assert got[0] == 1 and got[1] is got


def test_strides_and_sharing_are_kept():
    base = rl.arange(12.0).reshape(3, 4)
    got = through({"base": base, "t": base.t(), "row": base[1]})
    assert got["t"].stride() == (1, 4) and got["t"].tolist() == base.t().tolist()
    got["base"][1, 0] = 99
    assert got["t"][0, 1].item() == 99 and got["row"][0].item() == 99


def test_only_the_reached_span_is_written():
    buffer = io.BytesIO()
    rl.save(rl.zeros(100_000)[500:510], buffer)
    assert len(buffer.getvalue()) < 3000
    buffer.seek(0)
    assert rl.load(buffer).tolist() == [0.0] * 10


def test_parameters_and_state_dict():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    optimizer = rl.optim.Adam(model.parameters())
    model(rl.ones(4, 3)).sum().backward()
    optimizer.step()
    got = through({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "p": nn.Parameter(rl.ones(2), requires_grad=False)})
    assert list(got["model"]) == list(model.state_dict()) and got["model"]._metadata == model.state_dict()._metadata
    assert type(got["p"]) is nn.Parameter and not got["p"].requires_grad
    again = rl.optim.Adam(model.parameters())
    again.load_state_dict(got["optimizer"])
    assert again.state_dict()["state"][0]["exp_avg"].tolist() == optimizer.state_dict()["state"][0]["exp_avg"].tolist()


def test_requires_grad_is_kept():
    got = through({"leaf": rl.ones(2, requires_grad=True), "plain": rl.ones(2)})
    assert got["leaf"].requires_grad and not got["plain"].requires_grad


@pytest.mark.parametrize("bad", [object(), lambda: 0, np.float32(1), range(3), {"deep": [1, {"x": object()}]}, frozenset([1])])
def test_objects_that_cannot_be_saved_are_named(bad, tmp_path):
    with pytest.raises(TypeError, match="which is not on the list"):
        rl.save(bad, tmp_path / "x.pt")
    assert os.listdir(tmp_path) == []


def test_a_whole_module_gets_a_sentence(tmp_path):
    with pytest.raises(TypeError, match=r"save its state_dict\(\) instead"):
        rl.save({"net": nn.Linear(2, 2)}, tmp_path / "x.pt")


def test_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "model.pt"
    rl.save({"v": 1}, path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        rl.save([rl.ones(1000), object()], path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.pt"]


def test_disk_errors_keep_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    rl.save({"v": 1}, path)
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        rl.save({"v": 2}, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.pt"]


def test_new_files_have_the_usual_permissions_and_old_ones_keep_theirs(tmp_path):
    path = tmp_path / "x.pt"
    old = os.umask(0o022)
    try:
        rl.save(1, path)
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(0o600)
        rl.save(2, path)
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


def test_missing_folder_and_folder_as_target(tmp_path):
    with pytest.raises(RuntimeError, match="does not exist"):
        rl.save(1, tmp_path / "no" / "x.pt")
    with pytest.raises(IsADirectoryError):
        rl.save(1, tmp_path)
    with pytest.raises(FileNotFoundError):
        rl.load(tmp_path / "none.pt")


# ---- damaged files
def archive_bytes(obj=None):
    buffer = io.BytesIO()
    rl.save({"w": rl.arange(300.0), "n": [1, 2]} if obj is None else obj, buffer)
    return buffer.getvalue()


def test_every_truncation_is_an_error():
    data = archive_bytes()
    for cut in range(0, len(data), 37):
        with pytest.raises((DamagedFileError, EOFError)) as e:
            rl.load(io.BytesIO(data[:cut]))
        assert "truncated" in str(e.value) or "damaged" in str(e.value) or "empty" in str(e.value) or "not a checkpoint" in str(e.value)


def test_every_flipped_byte_is_noticed_or_harmless():
    data = bytearray(archive_bytes())
    good = rl.load(io.BytesIO(bytes(data)))["w"].tolist()
    for at in range(0, len(data), 11):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        try:
            got = rl.load(io.BytesIO(bytes(broken)))
        except (RuntimeError, pickle.UnpicklingError):
            continue
        assert got["w"].tolist() == good and got["n"] == [1, 2]  # padding, names and times may differ


def test_the_message_says_where():
    data = archive_bytes()
    with pytest.raises(DamagedFileError, match=r"truncated: entry archive/data/0 needs bytes up to \d+, the file has \d+"):
        rl.load(io.BytesIO(data[:data.index(b"data/0") + 100]))
    with pytest.raises(DamagedFileError, match="checksum of archive/data/0"):
        broken = bytearray(data)
        at = data.index(struct.pack("<3f", 1, 2, 3))
        broken[at] ^= 1
        rl.load(io.BytesIO(bytes(broken)))


def zip_with(pickled: bytes, compression=zipfile.ZIP_STORED, **entries) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as z:
        z.writestr("a/data.pkl", pickled)
        for name, data in entries.items():
            z.writestr("a/data/" + name.lstrip("_"), data)
    buffer.seek(0)
    return buffer


def test_no_code_runs():
    class Evil:
        def __reduce__(self):
            return os.system, ("touch /tmp/rushlight-was-here",)
    for protocol in range(6):
        with pytest.raises((pickle.UnpicklingError, RuntimeError)):
            rl.load(zip_with(pickle.dumps(Evil(), protocol)), weights_only=False)
    assert not os.path.exists("/tmp/rushlight-was-here")


@pytest.mark.parametrize("name", ["builtins\neval", "builtins\ngetattr", "os\nsystem", "posix\nsystem", "torch\nload", "torch.nn\nLinear", "rushlight\nsave",
                                  "__main__\nNet"])
def test_names_off_the_list_are_refused(name):
    with pytest.raises(pickle.UnpicklingError, match="refused to load"):
        rl.load(zip_with(b"\x80\x02c" + name.encode() + b"\n."))


def test_random_opcodes_never_crash():
    rng = np.random.default_rng(0)
    refused = 0
    ops = b"}])(N\x88\x89KMJGX\x8cq hj\x95cRbaestu\x85\x86\x87Q.C\x94\x93"
    for _ in range(3000):
        body = bytes(rng.choice(list(ops), rng.integers(1, 40)).astype(np.uint8)) + bytes(rng.integers(0, 256, 6).astype(np.uint8))
        try:
            rl.load(zip_with(b"\x80\x02" + body))
        except (RuntimeError, pickle.UnpicklingError):
            refused += 1
    assert refused > 2500  # a few of them mean something


def storage_pickle(size, stride, offset=0, numel=4, kind="FloatStorage"):
    def tup(v):
        return b"(" + b"".join(b"J" + struct.pack("<i", x) for x in v) + b"t"
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n" + kind.encode() + b"\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ"
            + struct.pack("<i", numel) + b"tQJ" + struct.pack("<i", offset) + tup(size) + tup(stride) + b"\x89ccollections\nOrderedDict\n)RtR.")


def test_a_small_file_cannot_claim_a_large_tensor():
    data = np.arange(4, dtype=np.float32).tobytes()
    assert rl.load(zip_with(storage_pickle([4], [1]), _0=data)).tolist() == [0, 1, 2, 3]
    for size, stride, offset, numel in [([5], [1], 0, 4), ([4], [2], 0, 4), ([4], [1], 1, 4), ([2**30, 2**30], [1, 1], 0, 4), ([-1], [1], 0, 4), ([2], [-1], 0, 4),
                                        ([4], [1], -1, 4), ([4], [1], 0, 1000), ([4, 1], [1], 0, 4), ([4], [1], 0, -1)]:
        with pytest.raises(DamagedFileError):
            rl.load(zip_with(storage_pickle(size, stride, offset, numel), _0=data))
    with pytest.raises(DamagedFileError, match="missing"):
        rl.load(zip_with(storage_pickle([4], [1])))


def test_compressed_entries_are_refused():
    with pytest.raises(DamagedFileError, match="compressed"):
        rl.load(zip_with(b"\x80\x02N.", zipfile.ZIP_DEFLATED))


def test_other_formats_get_a_sentence(tmp_path):
    with pytest.raises(RuntimeError, match="before PyTorch 1.6"):
        rl.load(io.BytesIO(pickle.dumps({"a": 1}, 2)))
    with pytest.raises(DamagedFileError, match="not a checkpoint"):
        rl.load(io.BytesIO(b"hello, this is text"))


def test_map_location():
    buffer = archive_bytes(rl.ones(2)).replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    with zipfile.ZipFile(io.BytesIO(archive_bytes(rl.ones(2)))) as z:
        pickled = z.read("archive/data.pkl").replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    data = np.ones(2, np.float32).tobytes()
    with pytest.raises(RuntimeError, match="map_location='cpu'"):
        rl.load(zip_with(pickled, _0=data))
    for where in ("cpu", rl.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage):
        assert rl.load(zip_with(pickled, _0=data), map_location=where).tolist() == [1, 1]
    assert buffer


def test_mmap(tmp_path):
    path = tmp_path / "x.pt"
    rl.save({"w": rl.arange(10000.0)}, path)
    got = rl.load(path, mmap=True)["w"]
    got[0] = 5
    assert got[1:4].tolist() == [1, 2, 3] and rl.load(path)["w"][0].item() == 0  # copy on write


def test_file_objects_that_cannot_seek():
    class Pipe(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def writable(self):
            return True

        def write(self, b):
            self.data += bytes(b)
            return len(b)
    pipe = Pipe()
    rl.save({"x": rl.ones(3)}, pipe)
    assert rl.load(io.BytesIO(pipe.data))["x"].tolist() == [1, 1, 1]
    with pytest.raises(AttributeError):
        rl.save(1, 5)
    with pytest.raises(AttributeError):
        rl.load(5)


# ---- safetensors
def test_safetensors_round_trip(tmp_path):
    path = tmp_path / "w.safetensors"
    obj = {n: rl.arange(6).reshape(2, 3).to(getattr(rl, n)) for n in DTYPES} | {"empty": rl.zeros(0, 3), "scalar": rl.tensor(2.5), "t": rl.arange(6.0).reshape(2, 3).t()}
    rl.save(obj, path)
    for mmap in (False, True):
        got = rl.load(path, mmap=mmap)
        assert set(got) == set(obj)
        for k, t in obj.items():
            assert got[k].dtype == t.dtype and got[k].shape == t.shape and got[k].tolist() == t.tolist()


def test_safetensors_header_is_what_the_format_says(tmp_path):
    path = tmp_path / "w.safetensors"
    rl.save({"b": rl.ones(2, dtype=rl.int8), "a": rl.ones(3)}, path)
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    assert header["a"] == {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]} and header["b"]["data_offsets"] == [12, 14] and (8 + n) % 8 == 0
    assert len(data) == 8 + n + 14


def safetensors_file(path, header, data=b"\0" * 16):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("header", [
    b"{", b"[]", b'{"a": 1}', {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}, {"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}},
    {"a": {"dtype": "F31", "shape": [4], "data_offsets": [0, 16]}}, {"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}},
    {"a": {"dtype": "F32", "shape": [2**61, 2**61], "data_offsets": [0, 16]}}, {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
    {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}},
    {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, {"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}}])
def test_damaged_safetensors(tmp_path, header):
    with pytest.raises(DamagedFileError):
        rl.load(safetensors_file(tmp_path / "x.safetensors", header))


def test_safetensors_refuses_other_things(tmp_path):
    path = tmp_path / "x.safetensors"
    for bad in ([rl.ones(1)], {1: rl.ones(1)}, {"a": 1}):
        with pytest.raises(TypeError):
            rl.save(bad, path)
    for cut in (0, 4, 8):
        path.write_bytes(struct.pack("<Q", 2**40)[:cut])
        with pytest.raises(DamagedFileError):
            rl.load(path)
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.torch
def test_files_go_both_ways(tmp_path):
    import torch
    obj = {"w": torch.arange(12.0).reshape(3, 4).t(), "n": [1, 2.5, "x", None, (1, 2)], "h": torch.ones(3, dtype=torch.bfloat16),
           "p": torch.nn.Parameter(torch.ones(2)), "size": torch.Size([1, 2]), "dtype": torch.int8, "model": torch.nn.Linear(2, 3).state_dict()}
    torch.save(obj, tmp_path / "t.pt")
    got = rl.load(tmp_path / "t.pt")
    assert got["w"].tolist() == obj["w"].tolist() and got["w"].stride() == obj["w"].stride() and got["n"] == obj["n"] and got["dtype"] == rl.int8
    assert got["h"].dtype == rl.bfloat16 and type(got["p"]) is nn.Parameter and got["model"]["weight"].tolist() == obj["model"]["weight"].tolist()
    mine = {"w": rl.arange(12.0).reshape(3, 4).t(), "big": 2**70, "n": obj["n"], "b": rl.tensor([True, False]), "size": rl.Size([1]), "dtype": rl.float16,
            "model": nn.Linear(2, 3).state_dict(), "d": rl.device("cpu"), "set": {1, 2}, "bytes": b"ab\xff", "o": OrderedDict(a=1), "p": nn.Parameter(rl.ones(2))}
    rl.save(mine, tmp_path / "r.pt")
    back = torch.load(tmp_path / "r.pt", weights_only=True)
    assert back["w"].tolist() == mine["w"].tolist() and back["w"].stride() == (1, 4) and back["big"] == 2**70 and back["dtype"] == torch.float16
    assert back["set"] == {1, 2} and back["bytes"] == b"ab\xff" and back["model"]["weight"].tolist() == mine["model"]["weight"].tolist()
    assert isinstance(back["p"], torch.nn.Parameter) and torch.load(tmp_path / "r.pt", weights_only=True, mmap=True)["w"].tolist() == mine["w"].tolist()
