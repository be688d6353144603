package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"lockkeeper/server/httplock"
	"lockkeeper/server/ops/admin"
)

// patterns are the patterns that are added to it, a door.Mux.
type patterns struct{ all []string }

func (p *patterns) Handle(pattern string, _ http.Handler) { p.all = append(p.all, pattern) }

func (p *patterns) HandleFunc(pattern string, _ func(http.ResponseWriter, *http.Request)) {
	p.all = append(p.all, pattern)
}

// openAPI is a description as far as the tests read it.
type openAPI struct {
	OpenAPI string
	Paths   map[string]map[string]json.RawMessage
}

// operation is one method of an address.
type operation struct {
	Parameters []struct {
		Name, In string
		Example  any
	}
	Responses map[string]json.RawMessage
}

// TestOpenAPI: the description that the HTTP port serves has exactly the addresses and methods that
// there are, and for locks the parameters that there are.
func TestOpenAPI(t *testing.T) {
	s := startReal(t, httpLocks)
	var doc openAPI
	status, body := askAdmin(t, "GET", s.HTTPAddr().String(), "/api/v1/openapi.json", "")
	if err := json.Unmarshal([]byte(body), &doc); err != nil || status != http.StatusOK || doc.OpenAPI != "3.0.3" {
		t.Fatalf("status %d, %v", status, err)
	}
	described := map[string]bool{}
	for path, methods := range doc.Paths {
		for method := range methods {
			if method != "parameters" {
				described[strings.ToUpper(method)+" "+path] = true
			}
		}
	}
	var there patterns
	s.surfaces.register(&there, admin.New(s.surfaces.shared), s.stopping)
	// Patterns without a method stand for these.
	without := map[string][]string{
		"/": {"GET /{file}"}, "/commands": {"GET /commands"}, "/commands/": {"GET /commands/{command}", "POST /commands/{command}"},
		"/v1/locks/{path...}": nil, // 405
	}
	for _, pattern := range there.all {
		expanded, ok := without[pattern]
		if !ok {
			expanded = []string{strings.ReplaceAll(pattern, "...}", "}")}
		}
		for _, one := range expanded {
			if !described[one] {
				t.Errorf("%s is not described", one)
			}
			delete(described, one)
		}
	}
	for one := range described {
		t.Errorf("%s is described, and not there", one)
	}
	lock := doc.Paths["/v1/locks/{path}"]
	names := map[string][]string{}
	for method, raw := range lock {
		var o operation
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		for _, p := range o.Parameters {
			if p.In == "query" {
				names[strings.ToUpper(method)] = append(names[strings.ToUpper(method)], p.Name)
				if p.Example == nil {
					t.Errorf("%s of %s has no example", p.Name, method)
				}
				q := url.Values{p.Name: {fmt.Sprint(p.Example)}}
				if p.Name == "leases" {
					q.Set("mode", "semaphore")
				}
				if p.Name != "hold" {
					q.Set("hold", "renew")
				}
				askLock(t, s, strings.ToUpper(method), "/openapi/"+p.Name+"?"+q.Encode()).want(http.StatusOK)
			}
		}
	}
	for method, there := range httplock.Parameters() {
		slices.Sort(there)
		slices.Sort(names[method])
		if !slices.Equal(there, names[method]) {
			t.Errorf("%s has the parameters %q, and %q are described", method, there, names[method])
		}
	}
}
