"""The label space's file: whole round trips, the same bytes, and one clear line for everything that is wrong."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from labelemb.labelspace import LabelSpace, LabelSpaceError, file_format
from labelemb.support.errors import UserError

NAMES = ["naïve", "空 白", "\U0001f600", 'quote " \\ and\nnewline\x00', ""]
ABOUT = {
    "counts": [0, 1, 2, 3, 2**40],
    "specials": [""],
    "objective": {"tau": 2.0, "p": 1, "cap_reduction": "mean", "correct_only": True},
    "superclasses": {"über": ["naïve", "空 白"], "rest": [""]},
}


@pytest.fixture(autouse=True)
def _fixed_numbers():
    torch.manual_seed(5)


def dense_space():
    return LabelSpace.from_matrix(torch.randn(5, 5), NAMES, kind="logit", **ABOUT)


def factor_space():
    return LabelSpace.from_factors(torch.randn(5, 2), torch.randn(2, 5), names=NAMES, **ABOUT)


def biased_space():
    return LabelSpace.from_factors(torch.randn(5, 2), torch.randn(2, 5), torch.randn(5), NAMES, **ABOUT)


def top_k_space():
    indices = [[0, 1], [1, 0], [2, 4], [3, -1], [4, 0]]
    return LabelSpace.from_top_k(indices, [[0.5, 0.25], [0.9, 0.1], [0.3, 0.2], [0.4, 0], [1, 0]], NAMES, **ABOUT)


ALL_FORMS = pytest.mark.parametrize("make", [dense_space, factor_space, biased_space, top_k_space])


def files_in(folder):
    return [entry.name for entry in folder.iterdir()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.safetensors"


def message_of_loading(path):
    with pytest.raises(LabelSpaceError) as caught:
        LabelSpace.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@ALL_FORMS
def test_what_is_saved_is_loaded(make, path):
    space = make()
    space.save(path)
    loaded = LabelSpace.load(path)
    for name, tensor in space.form.tensors().items():
        assert torch.equal(loaded.form.tensors()[name], tensor)
    assert type(loaded.form) is type(space.form)
    assert torch.equal(loaded.counts, space.counts)
    assert torch.equal(loaded.log_normalisers(), space.log_normalisers())
    for attribute in ("names", "specials", "objective", "superclasses", "versions", "rank"):
        assert getattr(loaded, attribute) == getattr(space, attribute)
    for symmetric in (False, True):
        assert loaded.nearest(0, symmetric=symmetric) == space.nearest(0, symmetric=symmetric)


@ALL_FORMS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_what_was_given_in_another_precision_is_saved_in_float32(make, dtype, path):
    original = make()
    given = {name: x.to(dtype) if x.is_floating_point() else x for name, x in original.form.tensors().items()}
    space = LabelSpace(type(original.form)(**given))
    space.save(path)
    torch.testing.assert_close(LabelSpace.load(path).matrix(), space.matrix())
    torch.testing.assert_close(space.matrix(), original.matrix(), rtol=0, atol=0.05)


def test_what_is_not_known_stays_unknown(path):
    LabelSpace.from_matrix(torch.eye(3)).save(path)
    loaded = LabelSpace.load(path)
    assert (loaded.counts, loaded.objective, loaded.superclasses, loaded.specials) == (None, None, None, ())


@ALL_FORMS
def test_saving_again_gives_the_same_bytes(make, path):
    space = make()
    space.save(path)
    first = path.read_bytes()
    LabelSpace.load(path).save(path)
    assert path.read_bytes() == first


def test_any_safetensors_reader_reads_the_file(path):
    space = biased_space()
    space.save(path)
    with safe_open(path, "numpy") as file:
        assert json.loads(file.metadata()["names"]) == NAMES
        assert set(file.keys()) == {"A", "B", "bias", "counts", "log_normalisers"}
        np.testing.assert_array_equal(file.get_tensor("A"), space.form.A.numpy())


def test_the_bytes_are_as_documented(path):
    space = top_k_space()
    space.save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert header["__metadata__"]["format"] == "labelemb.label-space"
    assert header["__metadata__"]["format_version"] == "1"
    assert header["counts"] == {"dtype": "I64", "shape": [5], "data_offsets": [0, 40]}
    assert header["indices"] == {"dtype": "I32", "shape": [5, 2], "data_offsets": [40, 80]}
    assert header["probabilities"] == {"dtype": "F32", "shape": [5, 2], "data_offsets": [80, 120]}
    numbers = content[8 + length :]
    assert len(numbers) == 120
    assert np.frombuffer(numbers[:40], "<i8").tolist() == ABOUT["counts"]
    assert np.frombuffer(numbers[40:80], "<i4").tolist() == space.form.indices.flatten().tolist()


def test_row_normalisers_are_stored_unless_that_would_take_long(path, monkeypatch):
    factor_space().save(path)
    assert "log_normalisers" in load_file(path)
    monkeypatch.setattr("labelemb.labelspace.space.LARGEST_COST_AT_SAVE", 10)
    space = factor_space()
    space.save(path)
    assert "log_normalisers" not in load_file(path)
    LabelSpace.load(path).nearest(0, symmetric=True)  # computed when needed
    space.save(path, normalisers=True)
    assert "log_normalisers" in load_file(path)
    space.save(path)  # they are there by now
    assert "log_normalisers" in load_file(path)
    space.save(path, normalisers=False)
    assert "log_normalisers" not in load_file(path)


def test_loaded_normalisers_are_not_computed_again(path, monkeypatch):
    factor_space().save(path)
    loaded = LabelSpace.load(path)
    monkeypatch.setattr(type(loaded.form), "log_normalisers", lambda form: pytest.fail("computed again"))
    loaded.nearest(0, symmetric=True)


def test_a_loaded_space_does_not_depend_on_the_file(path):
    space = dense_space()
    space.save(path)
    loaded = LabelSpace.load(path)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
        file.truncate(10)
    assert torch.equal(loaded.rows(range(5)), space.rows(range(5)))


@ALL_FORMS
def test_any_flipped_byte_is_noticed(make, path):
    make().save(path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        message_of_loading(path)


def test_any_cut_or_longer_file_is_noticed(path):
    factor_space().save(path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        message_of_loading(path)
    path.write_bytes(content + b"\0")
    message_of_loading(path)


def test_what_is_no_label_space_is_refused(tmp_path):
    foreign = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(2)}, foreign)
    assert "something else wrote it" in message_of_loading(foreign)
    text = tmp_path / "notes.txt"
    text.write_text("these are not the bytes you look for")
    assert "not a readable safetensors file" in message_of_loading(text)
    pickled = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(2)}, pickled)
    assert "not a readable safetensors file" in message_of_loading(pickled)
    assert "folder" in message_of_loading(tmp_path)
    assert "no such file" in message_of_loading(tmp_path / "nothing")
    (tmp_path / "empty").touch()
    message_of_loading(tmp_path / "empty")


def forge(path, *, tensors=(), metadata=(), without=()):
    """Change a good file and give it the checksum of its new content, as somebody who knows the format would."""
    with safe_open(path, "pt") as file:
        old = file.metadata()
    everything = {**load_file(path), **dict(tensors)}
    new_metadata = {**old, **dict(metadata)}
    for key in without:
        everything.pop(key, None)
        new_metadata.pop(key, None)
    known = {name: everything[name] for name in everything if name in file_format.DTYPE_OF}
    new_metadata["sha256"] = file_format._digest(new_metadata, known)
    save_file(everything, path, new_metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"format": "other"}}, "something else wrote it"),
        ({"metadata": {"format_version": "2"}}, "format version 2, this labelemb reads 1"),
        ({"metadata": {"storage": "sparse"}}, "unknown storage 'sparse'"),
        ({"metadata": {"storage": "dense"}}, "needs ['logits']"),
        ({"metadata": {"more": "x"}}, "['more']"),
        ({"without": ["names"]}, "['names']"),
        ({"without": ["A"]}, "needs ['A', 'B']"),
        ({"tensors": {"more": torch.ones(1)}}, "'more'"),
        ({"tensors": {"A": torch.ones(5, 2, dtype=torch.float64)}}, "A must be F32, not F64"),
        ({"tensors": {"counts": torch.ones(5, dtype=torch.int32)}}, "counts must be I64, not I32"),
        ({"tensors": {"counts": torch.ones(4, dtype=torch.int64)}}, "counts must be (5,)"),
        ({"tensors": {"counts": torch.full((5,), -1)}}, "counts must not be negative"),
        ({"tensors": {"A": torch.ones(5, 3)}}, "(5, 3) and (2, 5)"),
        ({"tensors": {"A": torch.full((5, 2), torch.nan)}}, "A must be finite"),
        ({"tensors": {"bias": torch.ones(4)}}, "bias must be (5,)"),
        ({"tensors": {"log_normalisers": torch.ones(4)}}, "log_normalisers must be (5,)"),
        ({"tensors": {"log_normalisers": torch.full((5,), torch.inf)}}, "log_normalisers must be finite"),
        ({"metadata": {"names": '["a","a","b","c","d"]'}}, "unique"),
        ({"metadata": {"names": '["a","b"]'}}, "2 names for 5 labels"),
        ({"metadata": {"names": '["a","b","c","d",5]'}}, "expected JSON type"),
        ({"metadata": {"names": '"abcde"'}}, "expected JSON type"),
        ({"metadata": {"names": "[1,"}}, "names are not valid JSON"),
        ({"metadata": {"objective": "[" * 100_000}}, "objective are not valid JSON"),
        ({"metadata": {"objective": "[1]"}}, "objective must be a dict"),
        ({"metadata": {"objective": '{"tau": NaN}'}}, "plain, finite"),
        ({"metadata": {"specials": '["nobody"]'}}, "unknown label 'nobody'"),
        ({"metadata": {"groups": '{"a": ["nobody"]}'}}, "unknown label 'nobody'"),
        ({"metadata": {"groups": '{"a": 1}'}}, "expected JSON type"),
        ({"metadata": {"versions": "3"}}, "expected JSON type"),
    ],
)
def test_tampering_that_keeps_the_checksum_right_is_noticed_too(path, change, message):
    factor_space().save(path)
    forge(path, **change)
    assert message in message_of_loading(path)


def test_a_forged_file_without_a_fault_loads(path):
    factor_space().save(path)
    forge(path, metadata={"names": '["a","b","c","d",""]', "groups": "null", "specials": "[]"})
    assert LabelSpace.load(path).names == ("a", "b", "c", "d", "")


def test_a_failing_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    dense_space().save(path)
    before = path.read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labelemb.support.files.os.fsync", full_disk)
    with pytest.raises(UserError, match=r"cannot write .*labels.safetensors: No space left"):
        factor_space().save(path)
    assert path.read_bytes() == before
    assert files_in(path.parent) == [path.name]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    dense_space().save(path)
    before = path.read_bytes()
    written = []

    def interrupted(tensor):
        written.append(tensor)
        if len(written) > 8:  # all tensors went into the checksum, some into the file
            raise KeyboardInterrupt
        return original(tensor)

    original = file_format._little_endian
    monkeypatch.setattr(file_format, "_little_endian", interrupted)
    with pytest.raises(KeyboardInterrupt):
        biased_space().save(path)
    assert path.read_bytes() == before
    assert files_in(path.parent) == [path.name]


def test_the_old_file_stays_in_place_until_the_new_one_is_whole(path, monkeypatch):
    dense_space().save(path)
    before = path.read_bytes()
    seen = []
    synchronise = os.fsync
    monkeypatch.setattr(
        "labelemb.support.files.os.fsync",
        lambda descriptor: (seen.append(path.read_bytes()), synchronise(descriptor)),
    )
    factor_space().save(path)
    assert seen[0] == before
    assert path.read_bytes() != before


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*missing.labels: No such file or directory"):
        dense_space().save(tmp_path / "missing" / "labels")
    with pytest.raises(UserError, match="cannot write"):
        dense_space().save(tmp_path)
    assert files_in(tmp_path) == []


def test_a_link_keeps_pointing_at_the_file(tmp_path):
    target, link = tmp_path / "real", tmp_path / "link"
    target.touch()
    link.symlink_to(target)
    dense_space().save(link)
    assert link.is_symlink()
    assert LabelSpace.load(target).names == tuple(NAMES)


def test_names_beyond_the_header_limit_are_refused_before_writing(path, monkeypatch):
    monkeypatch.setattr(file_format, "LARGEST_HEADER", 500)
    with pytest.raises(LabelSpaceError, match="safetensors allows 500: use shorter names"):
        dense_space().save(path)
    assert not path.exists()


def test_the_same_space_gives_the_same_bytes_in_another_process(path):
    program = (
        "import sys, torch; from labelemb.labelspace import LabelSpace;"
        "LabelSpace.from_matrix(torch.eye(3), ['a', 'b', 'c'], superclasses={'g': ['a']}).save(sys.argv[1])"
    )
    LabelSpace.from_matrix(torch.eye(3), ["a", "b", "c"], superclasses={"g": ["a"]}).save(path)
    other = path.with_name("other")
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", program, str(other)], check=True, env=environment)
    assert other.read_bytes() == path.read_bytes()
