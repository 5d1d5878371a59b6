"""Gold patches out of the patches that make the bugs."""

from __future__ import annotations

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import patch_lines
from lam_vllm.evaluation.study.fixes import reversed_patch, with_fixes

BUG = """diff --git a/f.py b/f.py
--- a/f.py
+++ b/f.py
@@ -1,3 +1,4 @@ def total():
 context
-    right
+    wrong
+++ counter
 more
diff --git a/g.py b/g.py
--- a/g.py
+++ b/g.py
@@ -7 +7 @@
-good
+evil"""


def test_the_fix_takes_for_granted_what_the_bug_leaves() -> None:
    assert patch_lines(reversed_patch(BUG)) == ["context", "wrong", "++ counter", "more", "evil"]


def test_a_patch_reversed_twice_is_itself() -> None:
    assert reversed_patch(reversed_patch(BUG)) == BUG


def test_runs_find_their_task_by_its_name_alone_or_with_their_own_behind_it() -> None:
    runs = [Run("a__b.1.bug__x", "", ()), Run("a__b.1.bug__x.run_7", "", ()), Run("other", "", (), "own")]
    tasks: list[dict[str, str | None]] = [
        {"instance_id": "a__b.1.bug__x", "patch": BUG},
        {"instance_id": "unasked", "patch": None},
    ]
    assert [run.gold_patch for run in with_fixes(runs, tasks)] == [reversed_patch(BUG), reversed_patch(BUG), "own"]
