package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/manual"
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

// newFile is the answer with this body. The name's extension says which type it has.
func newFile(name, body string) file {
	sum := sha256.Sum256([]byte(body))
	return file{body, contentTypes[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// served are all files by their addresses. Each is made when somebody has requested it first.
func served() map[string]func() file {
	all := make(map[string]func() file)
	names, err := fs.Glob(files, "*")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		all["/"+name] = sync.OnceValue(func() file {
			body, err := files.ReadFile(name)
			if err != nil {
				panic(err) // it is in this binary
			}
			return newFile(name, string(body))
		})
	}
	all["/"] = all["/index.html"]
	for _, name := range docFiles() {
		all["/docs/"+docAddress(name)] = sync.OnceValue(func() file { return docFile(name) })
	}
	all["/docs/"] = all["/docs/index.html"]
	all["/docs/style.css"] = sync.OnceValue(func() file { return newFile("style.css", manual.Style) })
	return all
}

// Handler serves the page at the root, and the pages of package docs below docs/, for GET and HEAD.
// Other paths than those of its files are not found. Browsers keep the files and ask each time
// whether they have changed, because another member, or this one after an upgrade, may have others
// under the same address.
func Handler() http.Handler {
	served := served()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made, ok := served[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
			return
		}
		f := made()
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
