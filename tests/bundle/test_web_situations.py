"""The table of situations on the page: what the command takes for a scan, for none and for a doubtful one."""

import re

from tests.bundle.test_web import exported, javascript, pytestmark
from tests.corpus.situations import SITUATIONS, make

__all__ = ["exported", "pytestmark"]
FOUND = """
    const [{ findScans, thickOf }, { seen }] = await get("inputs/readers.js", "inputs/examination.js");
    for (const root of given) {
      const entries = (await readdir(root, { recursive: true, withFileTypes: true })).filter((one) => one.isFile());
      const read = async ({ name, parentPath }) =>
        ({ name, path: `${parentPath}/${name}`, bytes: new Uint8Array(await readFile(`${parentPath}/${name}`)) });
      try {
        const found = await findScans(await Promise.all(entries.map(read)));
        const thick = thickOf(found);
        const nameOf = ({ scan, files: [{ path }], part }) =>
          part ? scan.name : path.slice(root.length + 1).replace(".nii.gz", "");
        const guideOf = (own) =>
          seen(own, found).flatMap(({ other, role }) => (role.rank.length ? [nameOf(other)] : []))[0];
        const of = (own, { scan, identity } = own) => [
          nameOf(own),
          scan.warnings.some((one) => one.startsWith("it may be no scan of a head")) ? "doubtful" : "thick",
          `${identity.shows.contrast}${identity.agent ? " with agent" : ""}`,
          guideOf(own) ?? "",
        ];
        say([thick.map((one) => of(one)), found.filter((one) => !thick.includes(one)).map((one) => of(one)[0])]);
      } catch (error) {
        say(String(error.message));
      }
    }"""
OTHERWISE = {"a sidecar that was not fetched"}  # a browser has no link to it


def answers(roles):
    """What the command takes each file for: none, or a doubtful or sure scan, its contrast and its guide."""
    form = r"(thick|doubtful|no|fails)(?: ([\w\\*]+(?: with agent)?))?(?: by ([\w.-]+))?"
    parts = {name: re.match(form, role) for name, role in roles.items()}
    kept = {name: found for name, found in parts.items() if found[1] in ("thick", "doubtful")}
    return {name: (found[1], (found[2] or "").replace("\\", ""), found[3] or "") for name, found in kept.items()}


def short(name):
    """A file's name without the folders of BIDS; a series' without its number and dcm2niix's marks."""
    return re.sub(r"^\d+_|^(sub|set).*/|(_e\d+)?$", "", name)


def test_the_page_takes_for_scans_what_the_command_takes(tmp_path):
    expected = {name: tmp_path / str(k) for k, name in enumerate(SITUATIONS) if name not in OTHERWISE}
    for folder in expected.values():
        folder.mkdir()
    roles = {name: make(name, folder) for name, folder in expected.items()}
    for (name, role), said in zip(roles.items(), javascript(FOUND, *expected.values()), strict=True):
        found = {} if isinstance(said, str) else {short(one): rest for one, *rest in said[0]}
        wanted = answers({next(iter(found), ""): role} if isinstance(role, str) else role)
        assert found.keys() == wanted.keys(), (name, said)
        for one, (kind, contrast, guide) in wanted.items():
            assert found[one][0] == kind and contrast in (found[one][1], ""), (name, one, found[one])
            assert short(found[one][2]).split("/")[-1] == guide, (name, one, found[one])
