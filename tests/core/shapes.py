"""Tool output in many languages and shapes, written by hand, and edits that an agent makes between two reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence

from lam_vllm.lines import cut_text, join_pieces


def lines(text: str) -> str:
    return text.strip("\n")


CHINESE = lines("""
港口管理处关于锚链检查的通知
一、本次检查于六月三日上午九时开始,由第二小队负责执行。
二、锚链长度不足一百八十米的船只,不得在北侧泊位过夜停靠。
三、检查结果应当于当日下午五时之前登记在册,并由两人签名。
四、发现裂纹或锈蚀超过三分之一的链环,应立即更换,不得拖延。
五、北侧泊位的照明设备由电工班负责维修,期限为七天。
六、本通知自发布之日起施行,原通知同时废止。
警告:潮位高于四米时停止一切装卸作业。
""")
JAPANESE = lines("""
起動しました:サーバー「みなと」 ポート番号 8443
設定ファイルを読み込みました:/etc/みなと/設定.toml
警告:キャッシュの容量が残り少なくなっています(残り 12%)
接続を受け付けました:クライアント「かもめ」、識別子 4711
エラー:データベースに接続できません。再試行します(1 回目)
エラー:データベースに接続できません。再試行します(2 回目)
接続しました:データベース「灯台」、応答時間 38 ミリ秒
終了しました:処理した件数 1204、失敗した件数 0
""")
KOREAN = lines("""
항구 관리 시스템 점검 보고서 (2024년 6월 3일)
1. 북쪽 부두의 조명 장치는 모두 정상으로 작동하고 있습니다.
2. 닻사슬 길이가 180미터보다 짧은 배는 밤새 정박할 수 없습니다.
3. 점검 결과는 당일 오후 다섯 시까지 장부에 기록해야 합니다.
4. 금이 간 고리를 발견하면 즉시 교체하고 책임자에게 알립니다.
5. 조위가 4미터를 넘으면 모든 하역 작업을 중단합니다.
6. 이 보고서는 발행한 날부터 효력이 있습니다.
""")
ARABIC = lines("""
تقرير فحص الميناء ليوم الاثنين الثالث من حزيران
السفينة الأولى: طول السلسلة ١٨٠ متراً، والحالة جيدة جداً
السفينة الثانية: طول السلسلة ١٢٠ متراً، والحالة تحتاج إلى إصلاح
يُمنع الوقوف في الرصيف الشمالي بعد الساعة التاسعة مساءً
يجب تسجيل النتائج في الدفتر قبل نهاية اليوم بتوقيع شخصين
خطأ: تعذّر الاتصال بقاعدة البيانات، ستُعاد المحاولة بعد ٣٠ ثانية
نجح الاتصال: زمن الاستجابة ٣٨ جزءاً من الألف من الثانية
انتهى التقرير، عدد السفن المفحوصة ١٢ وعدد الأعطال ٠
""")
HEBREW = lines("""
\u200fדוח בדיקה של הנמל, יום שני, השלישי ביוני
\u200fהאונייה הראשונה: אורך השרשרת 180 מטר, מצב טוב מאוד
\u200fהאונייה השנייה: אורך השרשרת 120 מטר, דרוש תיקון דחוף
\u202bקובץ \u202aharbour/config.py\u202c נקרא בהצלחה\u202c
\u202bקובץ \u202aharbour/anchor.py\u202c לא נמצא, מנסה שוב\u202c
שגיאה: אין חיבור למסד הנתונים, ניסיון חוזר בעוד 30 שניות
החיבור הצליח: זמן תגובה 38 אלפיות השנייה
סוף הדוח: נבדקו 12 אוניות, ונמצאו 0 תקלות
""")
EMOJI = lines("""
👩‍🚒 the fire brigade of the harbour answered after 38 seconds
👨‍👩‍👧‍👦 a family of four boarded the ferry \u2066to\u2069 the island
🏴󠁧󠁢󠁳󠁣󠁴󠁿 flag of Scotland beside 🇳🇴 and 🇯🇵 on the second mast
👍🏽 approved by the captain, 👎🏿 refused by the pilot on duty
❤️ and ❤ are two hearts, one of them with a variation selector
1️⃣ first berth free, 2️⃣ second berth taken, 3️⃣ third berth closed
🧑🏻‍🤝‍🧑🏿 two of the crew signed the list of repairs together
✅ tests passed: 41   ❌ tests failed: 1   ⚠️ warnings: 3
""")
COMBINING = lines("""
Ca\u0309ng Ha\u0309i Pho\u0300ng mo\u031b\u0309 cu\u031b\u0309a tu\u031b\u0300 sa\u0301u gio\u031b\u0300 sa\u0301ng
Cảng Hải Phòng mở cửa từ sáu giờ sáng một ngày, and this line is composed
बंदरगाह की रिपोर्ट: लंगर की ज़ंजीर एक सौ अस्सी मीटर लंबी है
दूसरे जहाज़ की ज़ंजीर में दरार मिली, उसे तुरंत बदला जाए
กรุงเทพฯ: เรือลำที่สองต้องซ่อมโซ่สมอก่อนออกจากท่าในวันจันทร์
Z\u0351\u0343\u030e\u0334a\u0322\u0321l\u0353\u033bg\u0338\u0321o\u0336\u0322 climbs over the lines above and below
e\u0301cole, \u00e9cole and e\u0301\u0301cole are three words to a computer
\u212bngstr\u00f6m, \u00c5ngstr\u00f6m and A\u030angstro\u0308m are three as well
""")
TABLE = lines("""
| berth | ship          | chain, m | state    | checked by      |
|:------|:--------------|---------:|:--------:|-----------------|
| N1    | Seagull       |      180 | good     | Oscar Lindgren  |
| N2    | Old Mary      |      120 | repair   | Ingrid Solberg  |
| N3    | Northern Star |      210 | good     | Oscar Lindgren  |
| S1    | Petrel        |      175 | watch    | Ingrid Solberg  |
| S2    | White Heather |      190 | good     | Tomas Berg      |
| S3    | Cormorant     |      160 | repair   | Tomas Berg      |
""")
BOX = lines("""
┌───────┬───────────────┬──────────┬────────────────┐
│ berth │ ship          │ chain, m │ checked by     │
├───────┼───────────────┼──────────┼────────────────┤
│ N1    │ Seagull       │      180 │ Oscar Lindgren │
│ N2    │ Old Mary      │      120 │ Ingrid Solberg │
├───────┼───────────────┼──────────┼────────────────┤
│ S1    │ Petrel        │      175 │ Ingrid Solberg │
│ S2    │ White Heather │      190 │ Tomas Berg     │
├───────┼───────────────┼──────────┼────────────────┤
│ total │ 4             │      665 │                │
└───────┴───────────────┴──────────┴────────────────┘
""")
DIFF = lines("""
diff --git a/harbour/anchor.py b/harbour/anchor.py
index 3f9c2d1..7b0e4aa 100644
--- a/harbour/anchor.py
+++ b/harbour/anchor.py
@@ -12,9 +12,10 @@ class Anchor(Gear):
     def drop(self, depth, chain=180):
-        if depth > chain:
-            raise ValueError("the chain is too short")
+        if depth >= chain:
+            raise ChainError(depth, chain)
+        self.log.info("dropped at %s", depth)
         self.depth = depth
         return self
\x20
@@ -40,3 +41,4 @@ class Anchor(Gear):
     def raise_up(self):
         self.depth = None
+        self.log.info("raised")
\\ No newline at end of file
""")
LOG = lines("""
2024-06-03T09:00:00.118Z INFO  [main] harbour.server started with pid 4711 on node seven
2024-06-03T09:00:00.342Z DEBUG [pool-1] harbour.config read /etc/harbour/settings.toml
2024-06-03T09:00:01.007Z WARN  [pool-1] harbour.cache 12% of the memory is left
2024-06-03T09:00:01.590Z ERROR [pool-2] harbour.db connection refused, attempt 1 of 5
2024-06-03T09:00:03.601Z ERROR [pool-2] harbour.db connection refused, attempt 2 of 5
2024-06-03T09:00:07.655Z INFO  [pool-2] harbour.db connected after 38 ms
12:30:45 worker 3 took the job 8812 from the queue of the north berth
12:30:46 worker 3 gave the job 8812 back, since the berth is closed
Jun  3 09:00:08 node-seven harbour[4711]: accepted a client from 10.0.3.17 port 51512
[ 1717.405118] usb 1-4: new high-speed device number 9 using the port controller
""")
COLOURED = lines("""
\x1b[1m============================= test session starts =============================\x1b[0m
\x1b[32mPASSED\x1b[0m tests/test_anchor.py::test_drop\x1b[90m [ 20%]\x1b[0m
\x1b[32mPASSED\x1b[0m tests/test_anchor.py::test_raise\x1b[90m [ 40%]\x1b[0m
\x1b[31mFAILED\x1b[0m tests/test_chain.py::test_length\x1b[90m [ 60%]\x1b[0m
\x1b[33mSKIPPED\x1b[0m tests/test_chain.py::test_rust\x1b[90m [ 80%]\x1b[0m
\x1b[38;5;208mXFAIL\x1b[0m tests/test_rope.py::test_knot\x1b[90m [100%]\x1b[0m
progress: 10%\rprogress: 60%\rprogress: 100%\x1b[K done with all of the tests
\x1b]8;;https://harbour.example/report\x1b\\the whole report\x1b]8;;\x1b\\ is over there
""")
NAMES = ("Seagull", "Old Mary", "Northern Star", "Petrel", "Heather", "Cormorant", "Ålesund", "海鸥")
SHIPS = [
    {"berth": f"N{n}", "ship": name, "chain": 180 + 7 * n, "crew": [f"{name} one", f"{name} two"], "good": n % 3 > 0}
    for n, name in enumerate(NAMES)
]
_XML_SHIPS = "".join(
    f'<ship berth="N{n}" good="{n % 3 > 0}"><name>{name}</name><chain unit="m">{180 + 7 * n}</chain></ship>'
    for n, name in enumerate(NAMES)
)
XML = f"<harbour>{_XML_SHIPS}</harbour>"
ENCODED = base64.b64encode(bytes((n * n + 7 * n) % 251 for n in range(900))).decode()
MINIFIED = "".join(
    f"function f{n}(a,b){{if(a>{n}){{return b[{n}]||null}}var c=a+b;for(var i=0;i<{n};i++){{c+=g{n}(i)}};return c}}"
    for n in range(24)
)
CODE = lines("""
def drop(anchor, depth, chain=180):
    \"\"\"Lower the anchor to this depth, in metres.\"\"\"
    if depth > chain:
        raise ValueError("the chain is too short for this depth")

    anchor.depth = depth
    anchor.log.info("dropped at %s metres", depth)
    return anchor


class Rope(Gear):
    length = 40
""")

SHAPES: dict[str, tuple[str, ...]] = {
    "cjk": (CHINESE, JAPANESE, KOREAN),
    "right to left": (ARABIC, HEBREW),
    "emoji": (EMOJI,),
    "combining marks": (COMBINING,),
    "json, indented": (json.dumps(SHIPS, indent=2, ensure_ascii=False), json.dumps({"ships": SHIPS}, indent="\t")),
    "json, one line": (json.dumps(SHIPS, ensure_ascii=False), json.dumps({"ships": SHIPS}, separators=(",", ":"))),
    "json lines": ("\n".join(json.dumps(ship) for ship in SHIPS),),
    "xml, indented": (XML.replace("><", ">\n<"), XML.replace("<ship", "\n  <ship").replace("<name", "\n    <name")),
    "xml, one line": (XML, '<?xml version="1.0" encoding="UTF-8"?>' + XML * 2),
    "tables": (TABLE, BOX),
    "diff": (DIFF,),
    "log": (LOG,),
    "base64": (
        "\n".join(ENCODED[n : n + 76] for n in range(0, len(ENCODED), 76)),
        ENCODED,
        f"data:image/png;base64,{ENCODED}",
    ),
    "crlf": (CODE.replace("\n", "\r\n"), LOG.replace("\n", "\r\n") + "\r\n"),
    "ansi": (COLOURED,),
    "long lines": (MINIFIED, f"{CODE}\n{MINIFIED}\n{CODE}", "abcdefghij" * 300),
}
"""Documents by shape, each worth a reference."""


def changed(pieces: Sequence[str], place: int) -> list[str]:
    middle = len(pieces[place]) // 2
    return [*pieces[:place], f"{pieces[place][:middle]}✎{pieces[place][middle:]}", *pieces[place + 1 :]]


def put_in(pieces: Sequence[str], place: int) -> list[str]:
    return [*pieces[:place], f"a new one: {pieces[place]}", *pieces[place:]]


def taken_out(pieces: Sequence[str], place: int) -> list[str]:
    return [*pieces[:place], *pieces[place + 1 :]]


def swapped(pieces: Sequence[str], place: int) -> list[str]:
    return [*pieces[:place], *reversed(pieces[place : place + 3]), *pieces[place + 3 :]]


EDITS: tuple[Callable[[Sequence[str], int], list[str]], ...] = (changed, put_in, taken_out, swapped)


def edited(text: str, edit: Callable[[Sequence[str], int], list[str]], place: float = 0.5) -> str:
    """The text with a line, or a part of a long line, edited at this share of its length."""
    pieces, _ = cut_text(text)
    return join_pieces(edit(pieces, int(place * len(pieces))))


ENCODABLE = [
    "def f(x):\n    return x\n",
    "Traceback (most recent call last):",
    "漢字 🏳️‍🌈 é",
    " \n",
    "",
    "\ud800 lone",
    "w " * 510,
]
"""Texts that an encoder takes: code, an error, other scripts, blank, nothing, a lone surrogate, a full window."""
