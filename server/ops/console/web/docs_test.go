package web

import (
	"html"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	docLinks  = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	docIDs    = regexp.MustCompile(` id="([^"]*)"`)
	elsewhere = regexp.MustCompile(`(?i)<(?:script|img|link|iframe)[^>]*(?:https?:)?//[^>]*>|<script|<style| style="`)
)

// TestDocs reads all pages: each link leads to a file, and to an anchor of it. No page has a
// script, a style or a picture from elsewhere, which the policy forbids. The link of each view is
// right.
func TestDocs(t *testing.T) {
	handler := Handler()
	pages, ids := make(map[string]string), make(map[string]map[string]bool)
	for address := range served() {
		if !strings.HasPrefix(address, "/docs/") {
			continue
		}
		w := get(handler, address, nil)
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: status %d, policy %q", address, w.Code, w.Header().Get("Content-Security-Policy"))
		}
		ids[address] = make(map[string]bool)
		if path.Ext(address) == ".html" || address == "/docs/" {
			pages[address] = w.Body.String()
			for _, m := range docIDs.FindAllStringSubmatch(w.Body.String(), -1) {
				ids[address][html.UnescapeString(m[1])] = true
			}
		}
	}
	ids["/"], ids["/icon.svg"] = nil, nil // of the console
	if len(pages) < 30 {
		t.Errorf("%d pages", len(pages))
	}
	follow := func(from, link string) {
		u, err := url.Parse(html.UnescapeString(link))
		if err != nil || u.Scheme != "" {
			return
		}
		to := from
		if u.Path != "" {
			to = (&url.URL{Path: from}).ResolveReference(&url.URL{Path: u.Path}).Path
		}
		if anchors, ok := ids[to]; !ok || u.Fragment != "" && !anchors[u.Fragment] {
			t.Errorf("%s: %q leads nowhere", from, link)
		}
	}
	for address, page := range pages {
		if found := elsewhere.FindString(page); found != "" {
			t.Errorf("%s has %q", address, found)
		}
		for _, m := range docLinks.FindAllStringSubmatch(page, -1) {
			follow(address, m[1])
		}
	}
	script := get(handler, "/app.js", nil).Body.String()
	links := regexp.MustCompile(`(\w+): "(\w+\.html[^"]*)"`).FindAllStringSubmatch(script, -1)
	views := regexp.MustCompile(`const views = \{([^}]*)\}`).FindStringSubmatch(script)
	if len(views) != 2 || len(links) != strings.Count(views[1], ",")+1 {
		t.Errorf("links %q for views %q", links, views)
	}
	for _, m := range links {
		follow("/", "docs/"+m[2])
		if !strings.Contains(views[1], m[1]) {
			t.Errorf("there is no view %s", m[1])
		}
	}
}

// TestDocLinks has a link to each kind of place.
func TestDocLinks(t *testing.T) {
	for _, test := range []struct{ from, link, want string }{
		{"why.md", "split-brain.md#see-for-yourself", "split-brain.html#see-for-yourself"},
		{"why.md", "README.md", "index.html"},
		{"why.md", "decisions", "decisions/README.html"},
		{"why.md", "lock-lab/redlock-clock-most.svg", "lock-lab/redlock-clock-most.svg"},
		{"decisions/README.md", "../why.md", "../why.html"},
		{"why.md", "https://example.org/x.md", "https://example.org/x.md"},
		{"why.md", "#what-to-do", "#what-to-do"},
		{"why.md", "../ARCHITECTURE.md", ""}, // not in the binary
		{"console.md", "console/lock.png", ""},
		{"why.md", "lock-lab", ""},
	} {
		got, ok := docLink(test.from, test.link)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%s in %s leads to %q, %v; want %q", test.link, test.from, got, ok, test.want)
		}
	}
}
