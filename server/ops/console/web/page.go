package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed *.html *.css *.js *.svg
var files embed.FS

// policy is the page's content security policy. Everything comes from the member itself; no other
// page may frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A file is the answer for one name.
type file struct {
	body, contentType, tag string
}

// Handler serves the page at the root, for GET and HEAD. Other paths than those of its files are
// not found. Browsers keep the files and ask each time whether they have changed, because another
// member, or this one after an upgrade, may have others under the same address.
func Handler() http.Handler {
	served := make(map[string]file)
	names, err := fs.Glob(files, "*")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		body, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is in this binary
		}
		sum := sha256.Sum256(body)
		served["/"+name] = file{string(body), contentTypes[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	served["/"] = served["/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := served[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
			return
		}
		header := w.Header()
		header.Set("Content-Type", f.contentType)
		header.Set("ETag", f.tag)
		header.Set("Cache-Control", "no-cache")
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(f.body))
	})
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}
