package s3test

import (
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Server is an http.Handler with one bucket: the path of a request is the key. The ETag of an
// object is the MD5 of its content, as in S3, so an object has an earlier ETag again with its
// content. Requests of one key take effect one after the other.
type Server struct {
	// Unconditional makes it ignore conditions, as servers do that do not know them.
	Unconditional bool

	mu      sync.Mutex
	objects map[string]object
}

// object is never changed.
type object struct {
	body []byte
	meta http.Header // x-amz-meta-
}

func (o object) etag() string { return fmt.Sprintf(`"%x"`, md5.Sum(o.body)) }

const maxObjectBytes = 1 << 20

// Keys returns the keys that have an object, in no order.
func (s *Server) Keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		keys = append(keys, key)
	}
	return keys
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxObjectBytes))
	if err != nil {
		http.Error(w, "EntityTooLarge", http.StatusBadRequest)
		return
	}
	key := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	old, found := s.objects[key]
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if !found {
			http.Error(w, "NoSuchKey", http.StatusNotFound)
			return
		}
		for name, values := range old.meta {
			w.Header()[name] = values
		}
		w.Header().Set("ETag", old.etag())
		w.Write(old.body)
	case http.MethodPut:
		if status := s.refuses(r, old, found); status != 0 {
			http.Error(w, http.StatusText(status), status)
			return
		}
		o := object{body, http.Header{}}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Amz-Meta-") {
				o.meta[name] = values
			}
		}
		if s.objects == nil {
			s.objects = make(map[string]object)
		}
		s.objects[key] = o
		w.Header().Set("ETag", o.etag())
	case http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "MethodNotAllowed", http.StatusMethodNotAllowed)
	}
}

// refuses returns the status of a PUT with a condition that does not hold; 0: it holds.
func (s *Server) refuses(r *http.Request, old object, found bool) int {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case s.Unconditional:
		return 0
	case none != "" && none != "*":
		return http.StatusNotImplemented
	case none == "*" && found:
		return http.StatusPreconditionFailed
	case match != "" && !found:
		return http.StatusNotFound
	case match != "" && match != old.etag():
		return http.StatusPreconditionFailed
	}
	return 0
}
