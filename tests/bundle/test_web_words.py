"""The command's messages in the words of the page: no option, everything else as it was."""

from tests.bundle.test_web import javascript, pytestmark

__all__ = ["pytestmark"]
SAID = {  # by the command: on the page
    "x has 2 slices along axis 2: expected 3 or more. Set --slice_axis if the slices lie along another axis.": (
        "x has 2 slices along axis 2: expected 3 or more. Set slice axis if the slices lie along another axis."
    ),
    "slice_thickness is 300: expected 0.05 to 50 mm. Set it as in --slice_thickness 5.": (
        "slice thickness is 300: expected 0.05 to 50 mm. Type it as 5."
    ),
    "noise is 31: expected auto, or 0 to 30 % of the range of tissue. Set --noise.": (
        "noise is 31: expected 0 to 30 % of the range of tissue. Set noise."
    ),
    "pixels of 2 x 2 mm are outside the 0.4 to 1.3 mm; --isotropic resamples them to the target.": (
        "pixels of 2 x 2 mm are outside the 0.4 to 1.3 mm."
    ),
    "a guide would change nothing. Leave out the guide, or set --ckpt_path to weights that know guides.": (
        "a guide would change nothing."
    ),
    "t2 is skipped: a diffusion series (--include t2 takes it nevertheless).": "t2 is skipped: a diffusion series.",
}
SAME = (
    "a--b.nii.gz is no scan that can be read. Unpack it first.",
    "slices of 3.5 mm lie 4.5 mm apart, 1.29 times as far.",
)
SAID |= dict(zip(SAME, SAME))


def test_options_become_fields_and_all_else_stays():
    code = 'const [{ plain }] = await get("page/words.js"); given.map(plain).forEach(say);'
    assert dict(zip(SAID, javascript(code, *SAID))) == SAID


def test_a_time_is_rounded_up_to_what_people_wait():
    code = 'const [{ duration }] = await get("page/words.js"); say([0, 41, 89, 91, 170, 3000].map(duration));'
    assert javascript(code) == [["5 s", "45 s", "90 s", "2 min", "3 min", "50 min"]]
