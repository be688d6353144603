package fence

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
)

// HTTPStore is an ObjectStore that speaks S3's API over HTTP. It does not sign: Do does, with the
// signer of a client library, or the URL is of a proxy or a server that needs no signature.
type HTTPStore struct {
	// URL of the bucket, as "https://s3.eu-central-1.amazonaws.com/bucket". Keys are added to it.
	URL string

	// Do sends a request; nil stands for http.DefaultClient.Do.
	Do func(*http.Request) (*http.Response, error)

	// MaxBytes is the largest object that Get returns; 0 stands for 64 MiB.
	MaxBytes int64
}

const defaultObjectBytes = 64 << 20

// Get implements ObjectStore.
func (s *HTTPStore) Get(ctx context.Context, key string) (body []byte, etag string, err error) {
	limit := s.MaxBytes
	if limit <= 0 {
		limit = defaultObjectBytes
	}
	resp, err := s.send(ctx, http.MethodGet, key, nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, "", fmt.Errorf("fence: get %s: %w", key, fs.ErrNotExist)
	case err == nil && resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("status %s: %.200q", resp.Status, body)
	case err == nil && int64(len(body)) > limit:
		err = fmt.Errorf("the object has more than %d bytes", limit)
	}
	if err != nil {
		return nil, "", fmt.Errorf("fence: get %s: %w", key, err)
	}
	return body, resp.Header.Get("ETag"), nil
}

// Put implements ObjectStore.
func (s *HTTPStore) Put(ctx context.Context, key string, body []byte, etag string) error {
	header := http.Header{"If-None-Match": {"*"}}
	if etag != "" {
		header = http.Header{"If-Match": {etag}}
	}
	resp, err := s.send(ctx, http.MethodPut, key, header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed, http.StatusConflict:
		return fmt.Errorf("fence: put %s: %w", key, ErrChanged)
	case http.StatusNotFound:
		if etag != "" { // the object is gone
			return fmt.Errorf("fence: put %s: %w", key, ErrChanged)
		}
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	return fmt.Errorf("fence: put %s: status %s: %q", key, resp.Status, text)
}

// Delete implements ObjectStore.
func (s *HTTPStore) Delete(ctx context.Context, key string) error {
	resp, err := s.send(ctx, http.MethodDelete, key, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusNotFound {
		return fmt.Errorf("fence: delete %s: status %s", key, resp.Status)
	}
	return nil
}

// send sends a request. A body can be sent again, on another connection.
func (s *HTTPStore) send(ctx context.Context, method, key string, header http.Header,
	body []byte) (*http.Response, error) {
	parts := strings.Split(key, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.URL, "/")+"/"+strings.Join(parts, "/"),
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("fence: %s %s: %w", strings.ToLower(method), key, err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	do := s.Do
	if do == nil {
		do = http.DefaultClient.Do
	}
	resp, err := do(r)
	if err != nil {
		return nil, fmt.Errorf("fence: %s %s: %w", strings.ToLower(method), key, err)
	}
	return resp, nil
}
