package fence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// ErrChanged: an object is not the one that its ETag names.
var ErrChanged = errors.New("fence: the object has changed")

// ObjectStore is the part of a store such as S3 that Objects needs. HTTPStore is one; a client
// library's is made in a few lines. An error other than those below leaves the outcome unknown.
type ObjectStore interface {
	// Get returns an object and its ETag; an error that is fs.ErrNotExist if there is none.
	Get(ctx context.Context, key string) (body []byte, etag string, err error)

	// Put writes an object if the present one has this ETag (If-Match), or with "" if there is none
	// (If-None-Match: *). Otherwise the error is an ErrChanged, and nothing was written.
	Put(ctx context.Context, key string, body []byte, etag string) error

	// Delete deletes an object; nil also if there is none.
	Delete(ctx context.Context, key string) error
}

// Objects fences objects of a store that has conditional writes: S3 and its kin. Any number of
// processes may share one; its methods may be called from any goroutine.
//
// An ETag is no version: S3's is the MD5 of the content, so it comes again with the content. If the
// token were metadata of the object, this would pass: holder 33 sees the content A; holder 34
// writes A again, with its own token; 33's write is conditional on the ETag of A, and comes last.
// So the token is content of a sidecar that never has the same content twice, and names the data:
//
//	state.fence                        the sidecar of the object "state"
//	    lockkeeper-fence-object 1
//	    token 34
//	    data 34-9c1f0a77e2b34d58           behind the name and a dot; empty: no data yet
//	    write 9c1f0a77e2b34d58             a random number for each write
//	state.34-9c1f0a77e2b34d58          the data, never changed
//
// A write puts the data under a new name, and then replaces the sidecar, if that still is the one
// with the token that was checked. A late write of the sidecar fails by its ETag, wherever it was
// on its way meanwhile. Readers follow the sidecar. The data that a write has replaced are deleted
// after it; a writer that dies between the two steps leaves an object that nothing names.
type Objects struct {
	store ObjectStore
}

// OpenObjects returns the fence. It first writes and deletes an object with this prefix and
// "fence-probe" in its name, to see that the store refuses writes whose condition does not hold:
// one that ignores the conditions, as older servers do, is an error.
func OpenObjects(ctx context.Context, store ObjectStore, prefix string) (*Objects, error) {
	key := prefix + "fence-probe-" + nonce()
	put := func(etag string, want error) error {
		err := store.Put(ctx, key, []byte(key), etag)
		if want != nil && err == nil {
			return fmt.Errorf("fence: the store writes %s whatever the condition (If-Match, If-None-Match) says", key)
		}
		if !errors.Is(err, want) {
			return fmt.Errorf("fence: probe %s: %w", key, err)
		}
		return nil
	}
	err := put("", nil)
	if err == nil {
		err = put("", ErrChanged)
	}
	if err == nil {
		err = put(`"00000000000000000000000000000000"`, ErrChanged)
	}
	if err := errors.Join(err, store.Delete(ctx, key)); err != nil {
		return nil, err
	}
	return &Objects{store}, nil
}

// sidecar is the content of the object that remembers.
type sidecar struct {
	token int64
	data  string // the last part of the data's key; "" if there are none
	etag  string // "" if there is no sidecar
}

const (
	sidecarHead = "lockkeeper-fence-object 1\n"

	// objectAttempts is how often a sidecar that changes meanwhile is read again. Each time another
	// write was accepted.
	objectAttempts = 20
)

func sidecarKey(name string) string { return name + ".fence" }

func dataKey(name, data string) string { return name + "." + data }

// nonce is a number that no other write has.
func nonce() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (o *Objects) read(ctx context.Context, name string) (sidecar, error) {
	key := sidecarKey(name)
	body, etag, err := o.store.Get(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return sidecar{}, nil
	}
	if err != nil {
		return sidecar{}, fmt.Errorf("fence: read %s: %w", key, err)
	}
	s, ok := decodeSidecar(string(body))
	if !ok || etag == "" {
		return sidecar{}, fmt.Errorf("%w: %s", ErrDamaged, key)
	}
	s.etag = etag
	return s, nil
}

func (s sidecar) encode() []byte {
	return fmt.Appendf(nil, "%stoken %d\ndata %s\nwrite %s\n", sidecarHead, s.token, s.data, nonce())
}

func decodeSidecar(text string) (s sidecar, ok bool) {
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[0]+"\n" != sidecarHead || lines[4] != "" {
		return sidecar{}, false
	}
	token, ok1 := strings.CutPrefix(lines[1], "token ")
	data, ok2 := strings.CutPrefix(lines[2], "data ")
	write, ok3 := strings.CutPrefix(lines[3], "write ")
	n, err := strconv.ParseInt(token, 10, 64)
	return sidecar{token: n, data: data}, ok1 && ok2 && ok3 && write != "" && err == nil && n > 0
}

// replace writes the sidecar in the place of old. False: another write came first.
func (o *Objects) replace(ctx context.Context, name string, old, s sidecar) (bool, error) {
	key := sidecarKey(name)
	err := o.store.Put(ctx, key, s.encode(), old.etag)
	if errors.Is(err, ErrChanged) {
		// Or it was this very write, of which a connection's loss has made two.
		now, err := o.read(ctx, name)
		return err == nil && s.data != "" && now.data == s.data, err
	}
	if err != nil {
		return false, fmt.Errorf("fence: write %s: %w", key, err)
	}
	return true, nil
}

// Check accepts a token or refuses it. With another error than ErrStale, ErrInvalid and ErrDamaged
// it is not known whether the token is remembered.
func (o *Objects) Check(ctx context.Context, name string, token int64) error {
	_, err := o.accept(ctx, name, token)
	return err
}

// accept is Check, and returns the sidecar that has the token.
func (o *Objects) accept(ctx context.Context, name string, token int64) (sidecar, error) {
	if _, err := check(name, token, 0); err != nil {
		return sidecar{}, err
	}
	for range objectAttempts {
		s, err := o.read(ctx, name)
		if err != nil {
			return sidecar{}, err
		}
		larger, err := check(name, token, s.token)
		if err != nil || !larger {
			return s, err
		}
		if _, err := o.replace(ctx, name, s, sidecar{token: token, data: s.data}); err != nil {
			return sidecar{}, err
		}
		// Read it, for its ETag.
	}
	return sidecar{}, fmt.Errorf("fence: %s changes all the time: %w", sidecarKey(name), ErrChanged)
}

// Put writes the object if the token is accepted. With another error than ErrStale, ErrInvalid and
// ErrDamaged it may have been written, or may be written yet, but not after a larger token.
func (o *Objects) Put(ctx context.Context, name string, token int64, body []byte) error {
	return o.write(ctx, name, token, func(sidecar) ([]byte, error) { return body, nil })
}

// Update writes the result of f, which gets the object; nil if there is none. The token is accepted
// before the object is read, and nothing is written between the two but by this Update: if another
// write was accepted meanwhile, f is called again. The error of f ends it.
func (o *Objects) Update(ctx context.Context, name string, token int64, f func(old []byte) ([]byte, error)) error {
	return o.write(ctx, name, token, func(s sidecar) ([]byte, error) {
		if s.data == "" {
			return f(nil)
		}
		old, _, err := o.store.Get(ctx, dataKey(name, s.data))
		if err != nil {
			return nil, err
		}
		return f(old)
	})
}

// write writes the result of f as data of the sidecar that f gets.
func (o *Objects) write(ctx context.Context, name string, token int64, f func(sidecar) ([]byte, error)) error {
	for range objectAttempts {
		s, err := o.accept(ctx, name, token)
		if err != nil {
			return err
		}
		body, err := f(s)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a newer write has replaced it
		}
		if err != nil {
			return err
		}
		data := fmt.Sprintf("%d-%s", token, nonce())
		if err := o.store.Put(ctx, dataKey(name, data), body, ""); err != nil {
			return fmt.Errorf("fence: write %s: %w", dataKey(name, data), err)
		}
		done, err := o.replace(ctx, name, s, sidecar{token: token, data: data})
		if err != nil {
			return err // and the data stay: the sidecar may name them
		}
		unused := s.data
		if !done {
			unused = data
		}
		if unused != "" {
			_ = o.store.Delete(ctx, dataKey(name, unused)) // nothing names it, and nothing will
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("fence: %s changes all the time: %w", sidecarKey(name), ErrChanged)
}

// Get returns the object, and the token that it was written under or that was checked since.
// Without an object the error is fs.ErrNotExist, and the token may be 0.
func (o *Objects) Get(ctx context.Context, name string) (body []byte, token int64, err error) {
	for range objectAttempts {
		s, err := o.read(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		if s.data == "" {
			return nil, s.token, fmt.Errorf("fence: read %s: %w", name, fs.ErrNotExist)
		}
		body, _, err := o.store.Get(ctx, dataKey(name, s.data))
		if !errors.Is(err, fs.ErrNotExist) {
			return body, s.token, err
		}
		// A newer write has replaced it.
	}
	return nil, 0, fmt.Errorf("fence: %s changes all the time: %w", sidecarKey(name), ErrChanged)
}
