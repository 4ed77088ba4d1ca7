"""The page of ckpt report in a browser."""

import json

import ckptfs
from browser import Browser, luminances
from ckpt_case import ckpt
from ckpt_report_test import HOSTILE, torch

ENTER, ESCAPE, DOWN, RIGHT = ("Enter", 13), ("Escape", 27), ("ArrowDown", 40), ("ArrowRight", 39)
ROWS = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[0].innerText.split('\\n')[0])"
TILES = "[...document.querySelectorAll('#treemap .tile')].map((tile) => tile.getAttribute('aria-label'))"
CRUMBS = "byId('crumbs').innerText.replaceAll('\\n', ' ')"


class Page(ckptfs.Case):
    """What people see, and what they can do."""

    def setUp(self):
        self.need_command("chromium")
        if torch is None:
            self.skip_avoidable("there is no torch")
        self.directory = self.scratch()
        self.browser = Browser(self.scratch())
        self.addCleanup(self.browser.__exit__)
        self.browser.__enter__()

    def save(self, content, *options):
        torch.manual_seed(1)
        file, page = self.directory / "x.pth", self.directory / "x.html"
        torch.save(content, file)
        done = ckpt("report", *options, "-f", "-o", page, file)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return page

    def model(self):
        layer = lambda: {"attn": {"weight": torch.randn(40, 30), "bias": torch.zeros(30)},
                         "mlp": {"weight": torch.randn(80, 40).bfloat16()}}
        model = {"embed": {"weight": torch.randn(100, 40)}, "h": {str(i): layer() for i in range(12)}}
        model["h"]["3"]["attn"]["weight"][0, 0] = float("nan")
        model["head"] = {"weight": model["embed"]["weight"]}
        return {"model": model, "step": 17}

    def open(self, page, fragment=""):
        self.browser.open(f"file://{page}{fragment}")

    def value(self, expression):
        return self.browser.value(expression)

    def assertQuiet(self, page):
        """The page has logged nothing, and requested nothing but itself."""
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual({url.partition("#")[0] for url in self.browser.requests()} - {"about:blank"}, {f"file://{page}"})

    def test_shows_the_checkpoint(self):
        page = self.save(self.model())
        self.open(page)
        self.assertEqual(self.value("document.title"), "x.pth – checkpoint report")
        tiles = self.value("[...document.querySelectorAll('#tiles dd')].map((node) => node.innerText)")
        self.assertEqual(tiles, ["57.2 K", "57,160", "38", "1 tied", "148.3 KiB", "151,840 bytes", "torch",
                                 "1 tensor", "with NaN or infinities", "4 globals", "allowed by weights_only"])
        listed = [row["key"] for row in json.loads(ckpt("ls", "--json", self.directory / "x.pth").stdout)]
        self.assertEqual(self.value(ROWS), listed)
        self.assertEqual(self.value("document.querySelectorAll('#table svg.histogram .bars').length"), 26)
        labels = self.value(TILES)
        self.assertEqual(len(set(labels)), len(labels))
        self.assertIn("model.h.7: 4.43 K parameters, 7.8 %, 3 tensors", labels)
        self.assertIn("model.embed.weight: 4.00 K parameters, 7.0 %, float32 100 × 40", labels)
        self.assertEqual(self.value("document.querySelectorAll('#treemap rect.bad').length"), 1)
        self.assertIn("step", self.value("byId('values').innerText"))
        self.assertQuiet(page)

    def test_treemap_has_the_areas_of_the_parameters(self):
        page = self.save({f"t{i}": torch.ones(10 * (i + 1)) for i in range(12)})
        self.open(page)
        boxes = self.value("[...document.querySelectorAll('#treemap .tile')].map((tile) => ["
                           "tile.item.parameters, ...['x', 'y', 'width', 'height'].map("
                           "(name) => Number(tile.querySelector('rect').getAttribute(name)))])")
        self.assertEqual(len(boxes), 12)
        density = [width * height / count for count, _, _, width, height in boxes]
        self.assertLess(max(density) / min(density), 1.1)  # There are gaps between them.
        for i, (_, x, y, width, height) in enumerate(boxes):
            self.assertLess(max(width / height, height / width), 3)
            for _, other_x, other_y, other_width, other_height in boxes[:i]:
                self.assertTrue(x + width <= other_x + 0.1 or other_x + other_width <= x + 0.1
                                or y + height <= other_y + 0.1 or other_y + other_height <= y + 0.1)

    def test_state_is_in_the_address(self):
        page = self.save(self.model())
        for fragment, crumbs, rows in (
                ("#module=model.h.2", "all model h 2", ["model.h.2.attn.weight", "model.h.2.attn.bias",
                                                        "model.h.2.mlp.weight"]),
                ("#module=model.h.3.attn.weight", "all model h 3 attn weight", ["model.h.3.attn.weight"]),
                ("#filter=BFLOAT16+h.1&sort=-key", "all", [f"model.h.{i}.mlp.weight" for i in (11, 10, 1)]),
                ("#only=nan", "all", ["model.h.3.attn.weight"]),
                ("#only=tied&module=model.head&colour=dtype&page=99", "all model head", ["model.head.weight"]),
                ("#module=model.none&filter=embed&only=x&page=-1&colour=y&sort=z&other=1", "all model",
                 ["model.embed.weight"])):
            self.open(page, fragment)
            self.assertEqual((self.value(CRUMBS), self.value(ROWS)), (crumbs, rows), fragment)
        self.open(page, "#sort=min&filter=h.3")
        self.assertEqual(self.value("document.querySelector('#table [aria-sort]').innerText.trim()"), "Min▲")
        minima = self.value("rowsFor(state, root).map((tensor) => tensor.figures.min)")
        self.assertEqual(minima, sorted(minima))
        self.assertQuiet(page)

    def test_keyboard(self):
        page = self.save(self.model())
        self.open(page)
        focused = "document.activeElement.getAttribute('aria-label')"
        self.value("document.querySelector('#treemap [tabindex=\"0\"]').focus()")
        self.assertRegex(self.value(focused), "^model: ")
        for key, label in ((DOWN, "model.h: "), (RIGHT, "model.embed.weight: "), (("ArrowLeft", 37), "model.h: "),
                           (DOWN, "model.h.0: "), (("ArrowUp", 38), "model.h: ")):
            self.browser.press(*key)
            self.assertTrue(self.value(focused).startswith(label), (label, self.value(focused)))
        self.browser.press(*ENTER)
        self.browser.wait_for(f"{CRUMBS} === 'all model h'")
        self.assertEqual(self.value("location.hash"), "#module=model.h")
        self.assertRegex(self.value(focused), r"^model\.h\.0: ")
        self.browser.press(*ESCAPE)
        self.browser.wait_for(f"{CRUMBS} === 'all model'")
        self.value("history.back()")
        self.browser.wait_for(f"{CRUMBS} === 'all model h'")

    def test_treemap_is_a_tree_for_screen_readers(self):
        self.open(self.save(self.model()))
        nodes = {node["nodeId"]: node for node in self.browser.call("Accessibility.getFullAXTree")["nodes"]}

        def describe(node):
            properties = {entry["name"]: entry["value"].get("value") for entry in node.get("properties", [])}
            return (node["role"]["value"], node.get("name", {}).get("value"), properties)

        def items(node):
            """The nearest tree items below a node."""
            for child in (nodes[i] for i in node.get("childIds", []) if i in nodes):
                if not child["ignored"] and child["role"]["value"] == "treeitem":
                    yield child
                else:
                    yield from items(child)

        tree, = (node for node in nodes.values() if not node["ignored"] and node["role"]["value"] == "tree")
        self.assertRegex(describe(tree)[1], "^Treemap. Arrow keys")
        model, = items(tree)
        _, name, properties = describe(model)
        self.assertRegex(name, "^model: ")
        self.assertEqual((properties["level"], properties["expanded"], properties["focusable"]), (1, True, True))
        modules = [describe(node) for node in items(model)]
        self.assertEqual([(name.partition(":")[0], properties["level"], properties.get("expanded"))
                          for _, name, properties in modules],
                         [("model.h", 2, True), ("model.embed.weight", 2, None)])
        layers = [describe(node)[1].partition(":")[0] for node in items(next(items(model)))]
        self.assertEqual(sorted(layers), sorted(f"model.h.{i}" for i in range(12)))
        self.browser.call("Accessibility.disable")

    def test_keys_of_a_tree(self):
        self.open(self.save({f"{name}.{i}": torch.ones(10 * (3 - i), 10) for name in ("up", "down") for i in range(3)}))
        focused = "document.activeElement.item.path"
        self.value("document.querySelector('#treemap [tabindex=\"0\"]').focus()")
        self.assertEqual(self.value(focused), "down")
        for key, path in ((("End", 35), "up"), (DOWN, "up.0"), (("End", 35), "up.2"), (("Home", 36), "up.0"),
                          (("1", 49), "up.1"), (("2", 50), "up.2"), (("x", 88), "up.2"), (("ArrowUp", 38), "up"),
                          (("d", 68), "down")):
            self.browser.press(*key)
            self.assertEqual(self.value(focused), path, key)
        self.assertEqual(self.value("document.querySelectorAll('#treemap [tabindex=\"0\"]').length"), 1)

    def test_a_module_that_is_too_small_for_its_parts_opens(self):
        page = self.save({"large": torch.ones(10 ** 6), **{f"small.{i}": torch.ones(1, 2) for i in range(3000)}},
                         "--no-values")
        self.open(page)
        self.value("[...document.querySelectorAll('#treemap .tile')].find((tile) => tile.item.path === 'small').focus()")
        self.assertEqual(self.value("document.activeElement.getAttribute('aria-expanded')"), "false")
        self.browser.press(*DOWN)
        self.browser.wait_for(f"{CRUMBS} === 'all small'")

    def test_pointer(self):
        page = self.save(self.model())
        self.open(page)
        self.value("[...document.querySelectorAll('#treemap .tile')].find((tile) => tile.item.path === 'model.h.5')"
                   ".dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        self.browser.wait_for(f"{CRUMBS} === 'all model h 5'")
        self.value("byId('crumbs').querySelectorAll('a')[1].click()")
        self.browser.wait_for(f"{CRUMBS} === 'all model'")
        self.value("byId('filter').value = 'h.1 attn', byId('filter').dispatchEvent(new Event('input'))")
        self.assertEqual(len(self.value(ROWS)), 6)
        self.assertEqual(self.value("location.hash"), "#module=model&filter=h.1+attn")
        self.value("document.querySelector('[data-sort=bytes]').click()")
        self.value("document.querySelector('[data-sort=bytes]').click()")
        self.assertEqual(self.value("state.sort"), "bytes")
        self.assertEqual(self.value("document.activeElement.dataset.sort"), "bytes")

    def test_hostile_texts_do_nothing(self):
        page = self.save({"model": {key: {"weight": torch.randn(50)} for key in HOSTILE},
                          **{key: key for key in HOSTILE}})
        for fragment in "", "#module=model", "#filter=%3Cimg&colour=%3Cimg", "#module=model.__proto__&sort=__proto__":
            self.open(page, fragment)
            self.assertEqual(self.value("document.title"), "x.pth – checkpoint report")
            self.assertEqual(self.value("document.images.length + document.scripts.length"), 2)
            attributes = self.value("[...document.querySelectorAll('*')].flatMap((node) => node.getAttributeNames())")
            self.assertEqual([name for name in attributes if name.startswith("on")], [])
        self.open(page)
        self.assertIn("model.\\u202egnp.exe.weight", self.value(ROWS))
        self.assertIn("model." + HOSTILE[0] + ".weight", self.value(ROWS))
        self.assertEqual(len(self.value(ROWS)), len(HOSTILE))
        self.assertQuiet(page)

    def test_many_tensors(self):
        page = self.save({f"model.layers.{i}.mlp.experts.{j}.weight": torch.ones(2) for i in range(100)
                          for j in range(200)}, "--no-values")
        self.open(page)
        self.assertEqual(len(self.value(ROWS)), 50)
        self.assertEqual(self.value("byId('place').innerText"), "1–50 of 20,000 tensors")
        self.assertIn(len(self.value(TILES)), range(100, 4000))
        self.value("byId('next').click()")
        self.assertEqual(self.value("byId('place').innerText"), "51–100 of 20,000 tensors")
        seconds = "const begin = performance.now(); show(); (performance.now() - begin) / 1000"
        self.assertLess(self.value(f"{{{seconds}}}"), 2)
        self.assertQuiet(page)

    def test_flat_checkpoint(self):
        page = self.save({f"t{i}": torch.ones(1) for i in range(6000)}, "--no-values")
        self.open(page)
        self.assertIn(len(self.value(TILES)), range(3000, 4001))
        self.assertQuiet(page)

    def test_checkpoints_without_tensors(self):
        for content in {"a": 1}, {"a": torch.ones(0)}, torch.ones(()):
            page = self.save(content)
            self.open(page)
            self.assertFalse(self.value("byId('main').hidden"))
        self.assertQuiet(page)

    def test_both_themes(self):
        page = self.save(self.model())
        for theme, low, high in ("light", 200, 256), ("dark", 0, 60):
            self.browser.call("Emulation.setEmulatedMedia",
                              features=[{"name": "prefers-color-scheme", "value": theme}])
            self.open(page)
            pixels = luminances(self.browser.screenshot())
            self.assertIn(sorted(pixels)[len(pixels) // 2], range(low, high), theme)
            self.assertGreater(len(set(pixels)), 50, theme)
            self.assertGreater(max(pixels) - min(pixels), 150, theme)

    def test_without_scripts(self):
        page = self.save(self.model())
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        self.browser.call("Page.navigate", url=f"file://{page}")
        self.browser.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")
        self.assertIn("needs JavaScript", self.value("document.body.innerText"))
        self.assertTrue(self.value("document.getElementById('main').hidden"))
