"""Files that are complete or absent, their endings and their hashes."""

import hashlib

import pytest

from scripts.files import sha256, stem, whole_file


def test_a_block_that_succeeds_leaves_the_file_alone_in_its_new_folder(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with whole_file(path) as partial:
        assert partial.parent == path.parent and partial.name.endswith(path.name)
        partial.write_text("a")
        assert not path.exists()
    assert path.read_text() == "a"
    assert list(path.parent.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_hash_is_that_of_all_files_in_their_order(tmp_path):
    large, small = b"x" * (1 << 20) + b"y", b"z"
    for name, content in (("a", large), ("b", small)):
        (tmp_path / name).write_bytes(content)
    assert sha256([tmp_path / "a", tmp_path / "b"]) == hashlib.sha256(large + small).hexdigest()
    assert sha256([tmp_path / "b", tmp_path / "a"]) == hashlib.sha256(small + large).hexdigest()


@pytest.mark.parametrize(("name", "bare"), [("a.nii.gz", "a"), ("a.b.nii", "a.b"), ("a.mgz", "a"), ("a.txt", "a.txt")])
def test_a_stem_is_a_name_without_the_ending_of_its_format(name, bare):
    assert stem(name) == bare
