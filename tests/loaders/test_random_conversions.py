"""A few random conversions inside and outside of the class of layout files; random_conversions.py runs many."""

import io
import tempfile
import unittest
from contextlib import redirect_stderr

from mxfp4_pack.learn import NoRearrangement
from random_conversions import OUTSIDE, check_inside, drivers_here, inside, outside, refusal
from program import needs_program

# 5001 has pads that repeat, so that one of four digits alone is known; the pads of 6011's w2 tell the rows of w13_scale.
INSIDE = 0, 4, 5001, 6011


class Random(unittest.TestCase):
    def setUp(self):
        self.enterContext(redirect_stderr(io.StringIO()))

    @needs_program
    def test_inside(self):
        for seed in INSIDE:
            call, what = inside(seed)
            with self.subTest(seed=seed, what=what), tempfile.TemporaryDirectory() as folder:
                try:
                    check_inside(call, folder, drivers_here())
                except NoRearrangement as e:
                    self.fail(e)

    def test_outside(self):
        for seed in range(len(OUTSIDE)):
            call, what, why = outside(seed)
            with self.subTest(seed=seed, what=what):
                self.assertRegex(refusal(call) or "accepted", why)


if __name__ == "__main__":
    unittest.main()
