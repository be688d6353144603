package console

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var updateFlag = flag.Bool("update", false, "write the pictures of docs/console.md anew; then look at them")

// axe is axe-core 4.14.1 (testdata/axe-core/README.md).
//
//go:embed testdata/axe-core/axe.min.js
var axe string

// hashes are the views, each as it stands in the page's address.
var hashes = []string{"cluster", "locks", "lock?path=/reports/monthly", "trouble", "sessions", "session?id=" + sessionID(3), "nodes?path=/config", "acts"}

// TestPage plays answers to the page.
func TestPage(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *browser, *player){
		"majority": testMajority, "hostile": testHostile, "keyboard": testKeyboard, "fresh": testFresh,
		"typing": testTyping, "nodes": testNodes, "acts": testActs, "colours": testColours, "names": testNames, "docs": testDocs,
	} {
		t.Run(name, func(t *testing.T) {
			p, b := newPlayer(t), openBrowser(t)
			b.resize(desktop)
			test(t, b, p)
		})
	}
}

// The picture shows who makes the majority, and follows a change within a second.
func testMajority(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "")
	b.shows("#summary", "Member 1 leads, in term 5. All 3 voters answer. One may still fail.")
	discs := func(want string) string {
		return `[...document.querySelectorAll("svg.ring g.disc")].map((g) => g.dataset.member + g.classList[1]).join(" ") === ` + quoted(want)
	}
	b.await("three members", discs("1leader 2follower 3follower"))
	b.shows("#changes-h ~ ol", "Member 1 after member 3: the leader’s process ended.")
	p.change(func() {
		p.views["cluster"] = func(url.Values) answer { return clusterInTrouble(time.Now()) }
	})
	took := b.awaitWithin(time.Second, "the change", discs("1leader 2follower 3down 4follower 5looking 6observer"))
	b.shows("#summary", "4 of 5 voters answer. One may still fail.")
	b.await("the tally", `[...document.querySelectorAll(".tally span")].map((s) => s.innerText + s.className[0]).join(" ") === "1u 2u 4u 5u 3o"`)
	b.await("words for those who do not see it", `document.querySelector("svg.ring").getAttribute("aria-label").includes("Member 3: no answer.")`)
	t.Logf("figures: a change was drawn after %v", took)
}

// Each view leads to the page that explains it, which the member serves: with its style and its
// pictures, on a phone, and back to the console.
func testDocs(t *testing.T, b *browser, p *player) {
	b.resize(phone)
	b.open(p.address(), "")
	for _, hash := range hashes {
		b.goTo(hash)
		b.settle()
		if to := eval[string](b, `document.querySelector("a.explained").href`); !strings.HasPrefix(to, p.address()+"docs/") {
			t.Errorf("%s is explained by %s", hash, to)
		}
	}
	for _, page := range []string{"guarantees.html", "split-brain.html"} {
		b.do(chromedp.Navigate(p.address() + "docs/" + page))
		b.await("the title of "+page, `document.querySelector("main h1")`)
		if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s is %d pixels wider than the window", page, wide)
		}
		b.await("the pictures of "+page, `[...document.images].every((i) => i.complete && i.naturalWidth > 0)`)
		b.accessible(page, "color-contrast")
	}
	if n := eval[int](b, "document.images.length"); n == 0 {
		t.Error("the last page has no picture")
	}
	b.do(chromedp.Click(`header a[href="../"]`))
	b.await("the console", `document.getElementById("nav")`)
}

// Programs are shown by their names, in the picture of a deadlock too; members link to their
// consoles, and one that was stopped for most of the time does not look healthy.
func testNames(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "trouble")
	for _, want := range []string{"billing[4711]@web-3", "10.0.1.2:51234", "stock-1"} {
		b.await(want+" in the picture", `document.querySelector("svg.graph")?.textContent.includes(`+quoted(want)+`)`)
		b.shows("ol.waits", want)
	}
	b.shows("[data-trouble=hot]", "stock-1")
	p.change(func() {
		p.views["cluster"] = func(url.Values) answer {
			stopped := member(2, "follower")
			stopped["pausedPart"], stopped["pauseMaxMs"] = 0.84, 2100
			return cluster(time.Now(), member(1, "leader"), stopped, member(3, "follower"))
		}
	})
	b.open(p.address(), "cluster")
	b.await("the link to another console", `document.querySelector("main td a, main th a")?.getAttribute("href") === "http://10.0.0.1:8080/#/cluster"`)
	b.shows("#members-h ~ .table", "84 %, 2 s")
	b.shows("#summary", "Member 2 did not run for 84 % of the last minutes.")
	b.await("the time zone", `/UTC[+−]\d\d:\d\d/.test(document.getElementById("fresh").innerText)`)
}

// Clients' texts become text, wherever they are shown, and nothing else.
func testHostile(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "locks")
	for _, look := range []struct{ hash, shown string }{
		{"locks", hostile}, {"locks", `report\u202etxt.exe`}, {"lock?path=" + url.QueryEscape("/locks/"+hostile), "/locks/" + hostile},
		{"lock?path=/reports/monthly", "“" + hostile}, {"trouble", hostile}, {"session?id=" + sessionID(3), "/" + hostile},
		{"session?id=" + url.QueryEscape(hostile), "Session " + hostile}, {"nodes?path=/config", "<script>window.hacked=1</script>"},
		{"nodes?path=" + url.QueryEscape("/"+hostile), hostile}, {"nodes", `report\u202etxt.exe`},
	} {
		b.goTo(look.hash)
		b.shows("main", look.shown)
		if n := eval[int](b, `document.querySelectorAll("main img, main script, main iframe, main [onerror]").length + (window.hacked ?? 0)`); n != 0 {
			t.Errorf("%s: what a client has written has become HTML", look.hash)
		}
	}
}

// Everything can be reached and used with the keyboard.
func testKeyboard(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "locks")
	b.shows("main", "/reports/monthly")
	b.press(kb.Tab)
	b.await("the link to the content", `document.activeElement.id === "skip" && getComputedStyle(document.activeElement).top !== "-64px"`)
	b.press(kb.Enter)
	b.await("the focus in the content", `document.activeElement.id === "main"`)
	// The buttons that sort.
	focused := func(text string) string { return `document.activeElement.innerText?.includes(` + quoted(text) + `)` }
	for range 12 {
		b.press(kb.Tab)
		if eval[bool](b, "!!("+focused("Longest wait")+")") {
			break
		}
	}
	b.press(kb.Enter)
	b.await("the table sorted", `document.querySelector("[aria-sort]").innerText.includes("Longest wait")`)
	b.await("the focus where it was", focused("Longest wait"))
	// A link takes the focus to the heading of the view.
	eval[string](b, `document.querySelector("#nav a[href='#/nodes']").focus(), ""`)
	b.press(kb.Enter)
	b.await("the focus on the heading", `document.activeElement.tagName === "H1" && document.activeElement.innerText === "Nodes"`)
	// The tree.
	eval[string](b, `document.querySelector("[role=treeitem]").focus(), ""`)
	at := func(path string) string { return `document.activeElement.dataset.path === ` + quoted(path) }
	b.shows(".tree", "locks")
	for _, step := range []struct{ key, at string }{{kb.ArrowDown, "/binary"}, {kb.End, "/" + reversed}, {kb.Home, "/"}, {kb.ArrowDown, "/binary"}, {kb.ArrowDown, "/config"}, {kb.ArrowDown, "/locks"}} {
		b.press(step.key)
		b.await("the focus on "+step.at, at(step.at))
	}
	b.press(kb.ArrowRight)
	b.shows(".tree", "lock-0042")
	b.press(kb.ArrowRight)
	b.await("the focus on the first child", at("/locks/lock-0000"))
	b.press(kb.Enter)
	b.shows("#node-h", "/locks/lock-0000")
	b.press(kb.ArrowLeft)
	b.await("the focus on the parent", at("/locks"))
	b.press(kb.ArrowLeft)
	b.await("the parent closed", `!document.querySelector(".tree").innerText.includes("lock-0042")`)
}

// The page says when its view is old, and when the member is cut off; and when not any more.
func testFresh(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "locks")
	b.shows("#fresh", "live")
	b.shows("#member", "seen by member 2, leader is 1")
	if said := eval[string](b, `document.getElementById("said").textContent`); said != "" {
		t.Errorf("a screen reader is told %q without a reason", said)
	}
	p.change(func() { p.silent = true })
	b.awaitWithin(5*time.Second, "that it is stale", `document.getElementById("fresh").innerText.includes("stale")`)
	b.shows("#banner", "Member 2 does not answer. What is shown is")
	b.await("that a screen reader is told", `document.getElementById("said").textContent === "The page is stale."`)
	b.shows("main", "/reports/monthly") // it is still there
	p.change(func() { p.silent = false })
	b.shows("#fresh", "live")
	b.await("no banner", `document.getElementById("banner").innerText === ""`)
	p.change(func() { p.cutFor = 75 * time.Second })
	b.shows("#fresh", "cut off")
	b.shows("#banner", "Member 2 knows no leader. What is shown was true 1 min 15 s ago")
}

// Updates disturb nobody who types, and the search is the member's.
func testTyping(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "locks")
	b.shows("#counts", "10,000 locks, 50,000 waiters")
	b.click("input[name=search]")
	for i, key := range "sched" {
		p.change(func() {}) // a view arrives
		b.press(string(key))
		if got := eval[string](b, `document.activeElement.name + " " + document.activeElement.value`); got != "search "+"sched"[:i+1] {
			t.Fatalf("while views arrive, the focus and what was typed are %q", got)
		}
	}
	b.shows("#counts", "1 of 10,000 locks")
	b.await("one row", `document.querySelectorAll("tbody tr").length === 1`)
	b.await("the search in the address", `location.hash.includes("search=sched")`)
	b.await("that a screen reader is told", `document.getElementById("said").textContent === "1 of 10,000 locks found."`)
	b.open(p.address(), "locks?offset=50")
	b.shows("tbody", "/tenants/t0050/ledger")
	b.shows(".pager", "51 to 100 of 10,000")
	b.click(`.pager button[aria-label="Last page"]`)
	b.shows("tbody", "/tenants/t9999/ledger")
}

// A node's data is shown by its type; long directories come in pages.
func testNodes(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "nodes?path=/config")
	b.shows("pre.data", "\"retries\": [\n    1,")
	b.click(".switcher button:last-child")
	b.shows("pre.data", "000000  7b 22 72 65 74 72 69 65  73 22 3a"[:8])
	b.goTo("nodes?path=/binary")
	b.shows("pre.data", "00 01 fe 20 62 69 6e 61 72 79 20 7f")
	b.goTo("nodes?path=/locks/lock-0007")
	b.await("a hundred of the children", `document.querySelectorAll(".tree [aria-level='3'][data-path]").length === 100`)
	b.click(".tree [data-more]")
	b.await("two hundred of them", `document.querySelectorAll(".tree [aria-level='3'][data-path]").length === 200`)
	b.shows(".tree .more", "100 left")
}

// Acts need the right credentials and the name typed; the page announces the effect before.
func testActs(t *testing.T, b *browser, p *player) {
	b.open(p.address(), "acts")
	b.shows("main", "Only a super user may act.")
	login := func(password string) {
		b.await("the fields", `document.querySelector("input[name=password]")`)
		b.clickInto("input[name=password]")
		b.press(password + kb.Enter)
	}
	login("wrong")
	b.shows("[role=alert]", "not those of a super user")
	login("correct horse")
	b.shows("#summary", "You may act.")
	b.goTo("lock?path=/reports/monthly")
	b.clickFor("td[data-name=Act] button", "dialog", "The holder learns of it at once")
	confirm := "dialog button[type=submit]"
	b.press("/reports/monthl")
	if !eval[bool](b, `document.querySelector("`+confirm+`").disabled`) {
		t.Error("the act is permitted before the path is typed")
	}
	b.press("y")
	b.await("the button", `!document.querySelector("`+confirm+`").disabled`)
	b.press(kb.Enter)
	b.shows("#act-result", "The node is gone")
	b.press(kb.Escape)
	b.await("the dialogue closed", `!document.querySelector("dialog").open`)
	p.mu.Lock()
	got, _ := json.Marshal(p.acts)
	p.mu.Unlock()
	if want := `[{"act":"break","confirm":"/reports/monthly","node":"_c_0f3c9a2b-7d1e-4b6f-lock-0000000017","path":"/reports/monthly","token":21474836498}]`; string(got) != want {
		t.Errorf("requested: %s, want %s", got, want)
	}
	if kept := eval[string](b, `JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie, location.href])`); strings.Contains(kept, "horse") {
		t.Errorf("the password is kept: %s", kept)
	}
	b.do(chromedp.Reload())
	b.goTo("acts")
	b.shows("#summary", "You may look, and not act.")
}

// The colours are the system's, or those that were chosen, also the next time.
func testColours(t *testing.T, b *browser, p *player) {
	paper := func() string { return eval[string](b, "getComputedStyle(document.body).backgroundColor") }
	b.open(p.address(), "locks")
	light := paper()
	b.resize(desktop.inDark())
	dark := paper()
	if light == dark {
		t.Fatalf("light and dark are both %s", light)
	}
	b.click("#scheme")
	if paper() != light {
		t.Errorf("the switch: %s, want %s", paper(), light)
	}
	b.do(chromedp.Reload())
	if paper() != light {
		t.Error("the choice is forgotten")
	}
}

// TestAccessibility has axe-core look at every view, on a desktop and on a phone, light and dark.
func TestAccessibility(t *testing.T) {
	p, b := newPlayer(t), openBrowser(t)
	for _, l := range []struct {
		look
		rules string // beyond the colours
	}{{desktop, ""}, {desktop.inDark(), "color-contrast"}, {phone, "color-contrast"}, {phone.inDark(), ""}} {
		b.resize(l.look)
		b.open(p.address(), "")
		for _, hash := range hashes {
			b.goTo(hash)
			b.settle()
			b.accessible(l.name+" "+hash, l.rules)
			if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
				t.Errorf("%s %s is %d pixels wider than the window: %s", l.name, hash, wide, eval[string](b, `[...document.querySelectorAll("main *")].filter((e) =>
					e.getBoundingClientRect().right > innerWidth).slice(-3).map((e) => e.outerHTML.slice(0, 160)).join("\n")`))
			}
		}
		p.change(func() {
			p.views["cluster"] = func(url.Values) answer { return clusterInTrouble(time.Now()) }
			p.cutFor = time.Minute
		})
		b.open(p.address(), "cluster")
		b.shows("#banner", "knows no leader")
		b.accessible(l.name+" in trouble", l.rules)
		p.change(func() {
			p.views["cluster"] = func(url.Values) answer { return clusterOfThree(time.Now()) }
			p.cutFor = 0
		})
	}
	b.open(p.address(), "acts")
	b.await("the fields", `document.querySelector("input[name=password]")`)
	b.clickInto("input[name=password]")
	b.press("correct horse" + kb.Enter)
	b.shows("#summary", "You may act.")
	b.accessible("acts, logged in", "")
	b.goTo("lock?path=/reports/monthly")
	b.clickFor("td[data-name=Act] button", "dialog", "The holder learns of it at once")
	b.accessible("the dialogue", "")
}

// settle waits until a view shows its answer.
func (b *browser) settle() {
	b.t.Helper()
	b.await("the view", `document.querySelector("main").dataset.view === location.hash.slice(2).split("?")[0] && document.getElementById("fresh").innerText.includes("live") && !document.querySelector("main").innerText.includes("Reading…") && document.querySelector("main").children.length > 1`)
}

// accessible fails the test for each violation that axe finds; rules, if not empty, are the only
// ones that it looks for.
func (b *browser) accessible(what, rules string) {
	b.t.Helper()
	eval[bool](b, `globalThis.axe ? true : (() => { `+axe+`; return true })()`)
	options := "{resultTypes: ['violations']}"
	if rules != "" {
		options = "{resultTypes: ['violations'], runOnly: {type: 'rule', values: [" + quoted(rules) + "]}}"
	}
	for _, violation := range eval[[]string](b, `axe.run(document, `+options+`).then((r) => r.violations.map((v) => v.id + ": " + v.help + "\n" +
		v.nodes.slice(0, 3).map((n) => "    " + n.target.join(" ") + " " + n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join("\n")))`) {
		b.t.Errorf("%s: %s", what, violation)
	}
}

// mostPictureBytes is how large a picture in docs may be.
const mostPictureBytes = 200 << 10

// TestPictures writes the pictures of docs/console.md with -update. Without, it checks that the
// page names pictures that are there, and none is too large.
func TestPictures(t *testing.T) {
	const dir = "../../docs/console"
	if testing.Short() && *updateFlag {
		t.Fatal("-update needs a browser; not with -short")
	}
	text, err := os.ReadFile("../../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	pictures := []struct {
		name string
		look
		hash string
	}{
		{"cluster", desktop, "cluster"}, {"cluster-dark", desktop.inDark(), "cluster"}, {"locks", desktop, "locks"}, {"lock", desktop, "lock?path=/reports/monthly"},
		{"lock-dark", desktop.inDark(), "lock?path=/reports/monthly"}, {"trouble", desktop, "trouble"}, {"sessions", desktop, "sessions"}, {"nodes-dark", desktop.inDark(), "nodes?path=/config"},
		{"act", desktop, "lock?path=/reports/monthly"}, {"phone", phone, "lock?path=/reports/monthly"}, {"phone-dark", phone.inDark(), "locks"},
	}
	if *updateFlag {
		p, b := newPlayer(t), openBrowser(t)
		was, paths := hostile, slices.Clone(lockPaths) // hostile names are not for the manual
		hostile, lockPaths[6], lockPaths[7] = "again", "/search/index", "/mail/outbox"
		defer func() { hostile, lockPaths = was, paths }()
		for _, picture := range pictures {
			b.resize(picture.look)
			if strings.HasSuffix(picture.name, "-dark") && strings.HasPrefix(picture.name, "cluster") {
				p.change(func() { p.views["cluster"] = func(url.Values) answer { return clusterInTrouble(time.Now()) } })
			}
			b.open(p.address(), picture.hash)
			b.settle()
			if picture.name == "act" {
				b.openDialogue(p, picture.hash)
			}
			png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, picture.name+".png"), png, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, picture := range pictures {
		file := filepath.Join(dir, picture.name+".png")
		info, err := os.Stat(file)
		switch {
		case err != nil:
			t.Errorf("%v (go test ./jepsen/console -run TestPictures -update writes it)", err)
		case info.Size() > mostPictureBytes:
			t.Errorf("%s has %d bytes, want at most %d", file, info.Size(), mostPictureBytes)
		case !strings.Contains(string(text), fmt.Sprintf("](console/%s.png)", picture.name)):
			t.Errorf("docs/console.md does not show %s.png", picture.name)
		}
	}
}

// openDialogue logs in and opens the dialogue in which a lock is broken.
func (b *browser) openDialogue(p *player, hash string) {
	b.open(p.address(), "acts")
	b.await("the fields", `document.querySelector("input[name=password]")`)
	b.clickInto("input[name=password]")
	b.press("correct horse" + kb.Enter)
	b.shows("#summary", "You may act.")
	b.goTo(hash)
	b.clickFor("td[data-name=Act] button", "dialog", "The holder learns of it at once")
	b.press("/reports/mon")
}
