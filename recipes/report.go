package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-zookeeper/zk"
)

// reportPath is below which a lockkeeper server answers getData with reports: docs/api.md.
const reportPath = "/zookeeper/api/v1/"

// ErrNoReport says that a server makes no reports, as ZooKeeper, or not this one, or not now. What
// a report says can be read node by node.
var ErrNoReport = errors.New("recipes: the server makes no such report")

// Report reads a report on the locks that a lockkeeper server makes of its state: one of the GETs
// of docs/api.md that clients may read, such as queues, with its parameters. It is JSON, and shows
// what the session may read. It is made after all that the session has done.
func (s *Session) Report(ctx context.Context, name string, parameters url.Values) ([]byte, error) {
	data, err := ask(ctx, s, func() ([]byte, error) {
		if err := s.confirm(); err != nil { // as Contenders
			return nil, err
		}
		data, _, err := s.conn.Get(reportPath + name + "?" + parameters.Encode())
		return data, err
	})
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, zk.ErrNoAuth), ctx.Err() != nil, s.over(nil) != nil:
		return nil, fmt.Errorf("recipes: report %s: %w", name, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoReport, err)
}
