package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/s3test"
)

// errLost is the error of a request that the network has lost, or its answer.
var errLost = errors.New("connection reset")

// wire is the way of one process to a store. It counts requests, and stops or fails some.
type wire struct {
	store ObjectStore
	calls int
	// before is called with the number of each request; its error becomes the request's.
	before func(call int) error
	// late makes a request that fails have its effect.
	late bool
}

func (w *wire) call(do func() error) error {
	w.calls++
	var err error
	if w.before != nil {
		err = w.before(w.calls)
	}
	if err != nil && !w.late {
		return err
	}
	return errors.Join(err, do())
}

func (w *wire) Get(ctx context.Context, key string) (body []byte, etag string, err error) {
	err = w.call(func() (err error) { body, etag, err = w.store.Get(ctx, key); return err })
	return body, etag, err
}

func (w *wire) Put(ctx context.Context, key string, body []byte, etag string) error {
	return w.call(func() error { return w.store.Put(ctx, key, body, etag) })
}

func (w *wire) Delete(ctx context.Context, key string) error {
	return w.call(func() error { return w.store.Delete(ctx, key) })
}

// newStore starts a server.
func newStore(t *testing.T) (*s3test.Server, *HTTPStore) {
	t.Helper()
	server := new(s3test.Server)
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return server, &HTTPStore{URL: s.URL}
}

func openObjects(t *testing.T, store ObjectStore) *Objects {
	t.Helper()
	o, err := OpenObjects(t.Context(), store, "")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// objectFence is Objects, or a twin with a bug.
type objectFence interface {
	Put(ctx context.Context, name string, token int64, body []byte) error
	Get(ctx context.Context, name string) (body []byte, token int64, err error)
}

// metadataFence is the twin that Objects' comment argues against: the token is in the metadata, and
// the write is conditional on the ETag.
type metadataFence struct{ wire *wire }

func (m metadataFence) send(method, name string, header http.Header, body []byte) (*http.Response, error) {
	s := m.wire.store.(*HTTPStore)
	var resp *http.Response
	err := m.wire.call(func() (err error) {
		resp, err = s.send(context.Background(), method, name, header, body)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	return resp, err
}

func (m metadataFence) Put(_ context.Context, name string, token int64, body []byte) error {
	for {
		resp, err := m.send(http.MethodHead, name, nil, nil)
		if err != nil {
			return err
		}
		newest, _ := strconv.ParseInt(resp.Header.Get("X-Amz-Meta-Fencing-Token"), 10, 64)
		if _, err := check(name, token, newest); err != nil {
			return err
		}
		header := http.Header{"X-Amz-Meta-Fencing-Token": {fmt.Sprint(token)}, "If-None-Match": {"*"}}
		if etag := resp.Header.Get("ETag"); etag != "" {
			header.Del("If-None-Match")
			header.Set("If-Match", etag)
		}
		if resp, err := m.send(http.MethodPut, name, header, body); err != nil || resp.StatusCode == http.StatusOK {
			return err
		}
	}
}

func (m metadataFence) Get(ctx context.Context, name string) ([]byte, int64, error) {
	body, _, err := m.wire.store.Get(ctx, name)
	return body, 0, err
}

// lateWrites stops a write with token 33 before each of its requests, while token 34 is accepted
// for the content that was there before. It returns the faults.
func lateWrites(t *testing.T, make func(*wire) objectFence) (faults []string) {
	t.Helper()
	for stop := 1; ; stop++ {
		_, store := newStore(t)
		if err := make(&wire{store: store}).Put(t.Context(), "state", 33, []byte("A")); err != nil {
			t.Fatal(err)
		}
		newer := make(&wire{store: store})
		late := &wire{store: store}
		stopped := false
		late.before = func(call int) error {
			if call != stop {
				return nil
			}
			stopped = true
			return newer.Put(t.Context(), "state", 34, []byte("A"))
		}
		err := make(late).Put(t.Context(), "state", 33, []byte("B"))
		body, _, getErr := newer.Get(t.Context(), "state")
		switch {
		case !stopped:
			return faults
		case getErr != nil || string(body) != "A":
			faults = append(faults, fmt.Sprintf("stopped before request %d: %v, and then %q, %v", stop, err, body, getErr))
		case err != nil && !errors.Is(err, ErrStale):
			t.Errorf("stopped before request %d: %v, want ErrStale or nil", stop, err)
		}
	}
}

// TestObjectsLateWrite: no write comes after the acceptance of a larger token, though the content
// and so the ETag are the same; and the test finds the fence that believes in ETags.
func TestObjectsLateWrite(t *testing.T) {
	faults := lateWrites(t, func(w *wire) objectFence { return &Objects{w} })
	if len(faults) > 0 {
		t.Error(faults)
	}
	faults = lateWrites(t, func(w *wire) objectFence { return metadataFence{w} })
	if len(faults) != 1 || !strings.Contains(faults[0], "before request 2") {
		t.Errorf("the fence with the token in the metadata: %q", faults)
	}
}

// TestObjectsLost: whichever request is lost, or its answer, the object is the old one or the new
// one, and nothing that the sidecar names is missing; and the next holder can write.
func TestObjectsLost(t *testing.T) {
	for _, late := range []bool{false, true} {
		for lost := 1; ; lost++ {
			_, store := newStore(t)
			good := &Objects{store}
			if err := good.Put(t.Context(), "state", 33, []byte("old")); err != nil {
				t.Fatal(err)
			}
			w := &wire{store: store, late: late}
			w.before = func(call int) error {
				if call == lost {
					return errLost
				}
				return nil
			}
			err := (&Objects{w}).Put(t.Context(), "state", 34, []byte("new"))
			if w.calls < lost {
				break
			}
			body, _, getErr := good.Get(t.Context(), "state")
			if text := string(body); getErr != nil || text != "new" && (text != "old" || err == nil) {
				t.Errorf("request %d is lost (late: %v): %v, and then %q, %v", lost, late, err, body, getErr)
			}
			if err := good.Put(t.Context(), "state", 35, []byte("next")); err != nil {
				t.Errorf("request %d is lost (late: %v): the next: %v", lost, late, err)
			}
		}
	}
}

// TestObjectsTwice: the answer to the sidecar's write is lost, and the transport sends it again:
// the second one is refused by the ETag of the first one, which was accepted.
func TestObjectsTwice(t *testing.T) {
	server, store := newStore(t)
	var twice bool
	store.Do = func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".fence") {
			resp, err := http.DefaultClient.Do(r.Clone(r.Context()))
			if err != nil {
				return nil, err
			}
			resp.Body.Close()
			twice = true
			r.Body, _ = r.GetBody()
		}
		return http.DefaultClient.Do(r)
	}
	o := &Objects{store}
	if err := o.Put(t.Context(), "state", 5, []byte("A")); err != nil || !twice {
		t.Errorf("Put = %v, twice = %v", err, twice)
	}
	if body, token, err := o.Get(t.Context(), "state"); err != nil || string(body) != "A" || token != 5 {
		t.Errorf("Get = %q, %d, %v", body, token, err)
	}
	if keys := server.Keys(); len(keys) != 2 {
		t.Errorf("the store has %q", keys)
	}
}

// TestObjectsUpdate: updates by several holders of equal and larger tokens lose none that was
// accepted, and leave two objects.
func TestObjectsUpdate(t *testing.T) {
	server, store := newStore(t)
	o := openObjects(t, store)
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for w := range 4 {
		wg.Go(func() {
			for i := range 10 {
				err := o.Update(t.Context(), "count", int64(1+i/5+w/3), func(old []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(old))
					return []byte(strconv.Itoa(n + 1)), nil
				})
				switch {
				case err == nil:
					mu.Lock()
					accepted++
					mu.Unlock()
				case !errors.Is(err, ErrStale):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	body, _, err := o.Get(t.Context(), "count")
	if err != nil || string(body) != strconv.Itoa(accepted) || accepted < 10 {
		t.Errorf("%q, %v after %d updates", body, err, accepted)
	}
	if keys := server.Keys(); len(keys) != 2 {
		t.Errorf("the store has %q", keys)
	}
}

func TestObjectsProbe(t *testing.T) {
	server, store := newStore(t)
	openObjects(t, store)
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("the probe leaves %q", keys)
	}
	server.Unconditional = true
	if _, err := OpenObjects(t.Context(), store, "p/"); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("a store that ignores conditions: %v", err)
	}
}

func TestObjectsDamaged(t *testing.T) {
	_, store := newStore(t)
	o := openObjects(t, store)
	if _, _, err := o.Get(t.Context(), "state"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := o.Check(t.Context(), "state", 7); err != nil {
		t.Fatal(err)
	}
	if _, token, err := o.Get(t.Context(), "state"); !errors.Is(err, fs.ErrNotExist) || token != 7 {
		t.Error(token, err)
	}
	good, etag, err := store.Get(t.Context(), "state.fence")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, good[:len(good)-1], append(slices.Clone(good), '\n'), bytes.Replace(good, []byte("7"), []byte("x"), 1),
		[]byte("lockkeeper-fence-object 2\n" + string(good))} {
		if err := store.Put(t.Context(), "state.fence", bad, etag); err != nil {
			t.Fatal(err)
		}
		if err := o.Put(t.Context(), "state", 8, []byte("A")); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "state.fence") {
			t.Errorf("%q: %v", bad, err)
		}
		if _, etag, err = store.Get(t.Context(), "state.fence"); err != nil {
			t.Fatal(err)
		}
	}
}
