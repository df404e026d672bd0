"""Files that are complete or absent, their endings and their hashes."""

import hashlib

import pytest

from scripts.files import sha256, stem, walk, whole_file


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


@pytest.mark.parametrize(
    ("name", "bare"), [("a.nii.gz", "a"), ("a.b.nii", "a.b"), ("a.mgz", "a"), ("a.txt", "a.txt"), ("A.b.NII.Gz", "A.b")]
)
def test_a_stem_is_a_name_without_the_ending_of_its_format(name, bare):
    assert stem(name) == bare


def visited(root):
    return [(folder.relative_to(root).as_posix(), names) for folder, _, names in walk(root)]


def test_a_folder_is_walked_in_the_order_of_names_without_what_is_hidden(tmp_path):
    for name in ("b/2", "b/1", "a/x/3", ".hidden/4", "a/.5", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert visited(tmp_path) == [(".", ["c"]), ("a", []), ("a/x", ["3"]), ("b", ["1", "2"])]


def test_links_to_folders_are_followed_and_each_folder_comes_once_under_its_own_name(tmp_path):
    for name in ("elsewhere/deep/1", "in/z/2"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    root = tmp_path / "in"
    for name, target in {
        "a": "z",
        "b": "../elsewhere",
        "c": "../elsewhere/deep",
        "z/up": "..",
        "z/top": "../..",
    }.items():
        (root / name).symlink_to(target)
    (tmp_path / "elsewhere/deep/back").symlink_to(root)
    assert visited(root) == [(".", []), ("z", ["2"]), ("b", []), ("b/deep", ["1"])]


def test_a_folder_that_the_caller_removes_is_not_walked_even_through_a_link(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path.parent)
    (tmp_path / "c").symlink_to("a")
    found = []
    for folder, folders, _ in walk(tmp_path):
        found.append(folder.name)
        folders.clear()
    assert found == [tmp_path.name]
