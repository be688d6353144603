package web

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// get is the answer to a GET.
func get(handler http.Handler, path string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestFilesAreServed(t *testing.T) {
	names, err := fs.Glob(files, "*")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	handler := Handler()
	for _, name := range append(names, "") {
		w := get(handler, "/"+name, nil)
		if w.Code != http.StatusOK || w.Body.Len() == 0 || w.Header().Get("Content-Type") == "" {
			t.Errorf("/%s: status %d, %d bytes, type %q", name, w.Code, w.Body.Len(), w.Header().Get("Content-Type"))
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("/%s: policy %q", name, policy)
		}
		again := get(handler, "/"+name, http.Header{"If-None-Match": {w.Header().Get("Etag")}})
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("/%s: what the browser has is sent again: status %d", name, again.Code)
		}
	}
	for _, path := range []string{"/nothing", "/docs/doc.go", "/docs/why.md", "/page.go", "/doc.go", "//style.css", "/api/v1/cluster"} {
		if w := get(handler, path, nil); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}

// The browser learns of all modules from the page itself, not from one another.
func TestModulesArePreloaded(t *testing.T) {
	text, err := files.ReadFile("index.html")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := fs.Glob(files, "*.js")
	for _, name := range names {
		if !strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("index.html does not name %s", name)
		}
	}
}

func TestOthersThanReadingIsRefused(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// No file has code that the policy forbids, or that could make a client's text more than text.
func TestFilesKeepTheRules(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"another origin":         regexp.MustCompile(`(?i)\b(https?:)?//[a-z0-9-]+\.[a-z]`),
		"an absolute address":    regexp.MustCompile(`(?:src|href)="/`),
		"HTML made of text":      regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc`),
		"code made of text":      regexp.MustCompile(`\beval\(|new Function|setTimeout\("|javascript:`),
		"an inline script":       regexp.MustCompile(`<script(?: type="module")?>`),
		"an inline style":        regexp.MustCompile(`<style|<[^>]* style="`),
		"an inline handler":      regexp.MustCompile(`<[^>]* on[a-z]+="`),
		"something that is kept": regexp.MustCompile(`sessionStorage|indexedDB|document\.cookie`),
	}
	names, _ := fs.Glob(files, "*")
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// The name of the language of pictures is no address.
		body := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		for what, pattern := range forbidden {
			if found := pattern.FindString(body); found != "" {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
		if lines := strings.Count(body, "\n"); lines > 400 {
			t.Errorf("%s has %d lines: cut it", name, lines)
		}
	}
}
