package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Client uses the commands snapshot and restore of a member.
type Client struct {
	URL           string // of the HTTP port with the base: http://host:8080/commands
	Authorization string // the header, which must prove a super user
	HTTP          *http.Client
}

// ErrUnknown says that the connection to a member ended, or its answer says so, while it restored:
// the state may have been replaced, or may yet be.
var ErrUnknown = errors.New("it is not known whether the state has been replaced")

// Snapshot downloads the state of the cluster and writes it to w. It returns the snapshot's own
// description when all of it has come and its checksums match. progress is called with the received
// bytes and the total.
func (c *Client) Snapshot(ctx context.Context, w io.Writer,
	progress func(done, all int64)) (znode.SnapshotInfo, error) {
	resp, err := c.do(ctx, http.MethodGet, snapshotName, nil, 0)
	if err != nil {
		return znode.SnapshotInfo{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != binaryType {
		return znode.SnapshotInfo{}, refusal(resp)
	}
	done := int64(0)
	body := io.TeeReader(resp.Body, writerFunc(func(b []byte) (int, error) {
		n, err := w.Write(b)
		done += int64(n)
		progress(done, resp.ContentLength)
		return n, err
	}))
	info, err := znode.ScanSnapshot(body)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return info, err
}

// Restore has the member replace the state of its cluster by a snapshot of size bytes, and returns
// the zxid at which that has happened. A snapshot of another cluster is refused, unless of names
// that one (znode.ClusterID.String). Errors: ErrUnknown; with all others the state is as it was.
func (c *Client) Restore(ctx context.Context, r io.Reader, size int64, of string,
	progress func(done, all int64)) (wire.Zxid, error) {
	done := int64(0)
	name := restoreName
	if of != "" {
		name += "?" + url.Values{ofCluster: {of}}.Encode()
	}
	resp, err := c.do(ctx, http.MethodPost, name, readerFunc(func(b []byte) (int, error) {
		n, err := r.Read(b)
		done += int64(n)
		progress(done, size)
		return n, err
	}), size)
	if err != nil && done == size {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	} else if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusGatewayTimeout {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, refusal(resp))
	} else if resp.StatusCode != http.StatusOK {
		return 0, refusal(resp)
	}
	var answer struct {
		LastZxid int64 `json:"last_zxid"`
		Error    string
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	} else if answer.Error != "" {
		return 0, errors.New(answer.Error)
	}
	return wire.Zxid(answer.LastZxid), nil
}

// CheckSnapshot reads a snapshot to its end, verifies its checksums, and returns its own
// description.
func CheckSnapshot(r io.Reader) (znode.SnapshotInfo, error) { return znode.ScanSnapshot(r) }

func (c *Client) do(ctx context.Context, method, name string, body io.Reader, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+"/"+name, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.ContentLength = size
		req.Header.Set("Content-Type", binaryType)
	}
	if c.Authorization != "" {
		req.Header.Set("Authorization", c.Authorization)
	}
	return c.HTTP.Do(req)
}

// refusal is the error of an answer.
func refusal(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var answer struct{ Error string }
	if json.Unmarshal(b, &answer) == nil && answer.Error != "" {
		return fmt.Errorf("refused: %s (%s)", answer.Error, resp.Status)
	}
	return fmt.Errorf("%s answers %s: is it the HTTP port of a member?", resp.Request.URL.Host, resp.Status)
}
