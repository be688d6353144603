package store

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"

	"lockkeeper/internal/s3test"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// Kinds are the kinds of stores, in the order of tables.
var Kinds = []string{"file", "sqlite", "mariadb", "postgresql", "redis", "etcd", "objects"}

// Needs returns an error that names the Debian package if a server is not installed.
func Needs(kind string) error {
	for _, k := range system.Kinds() {
		if k.Name == kind {
			return k.Needs()
		}
	}
	return nil
}

// Stores are stores that serve.
type Stores struct {
	Places  []lock.Place
	objects *httptest.Server
	systems []system.System
}

// Start starts stores of these kinds, with their data below a directory.
func Start(ctx context.Context, dir string, kinds []string) (s *Stores, err error) {
	s = new(Stores)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, kind := range kinds {
		at := filepath.Join(dir, "store-"+kind)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return s, fmt.Errorf("store: %w", err)
		}
		switch kind {
		case "file", "sqlite":
		case "objects":
			s.objects = httptest.NewServer(new(s3test.Server))
			at = s.objects.URL
		default:
			all := system.Kinds()
			i := slices.IndexFunc(all, func(k system.Kind) bool { return k.Name == kind })
			if i < 0 {
				return s, fmt.Errorf("store: there is no kind %q", kind)
			}
			started, err := all[i].Start(ctx, system.Site{Dir: at})
			if err != nil {
				return s, fmt.Errorf("store: %w", err)
			}
			s.systems = append(s.systems, started)
			at = started.Servers()[0].Addr()
		}
		s.Places = append(s.Places, lock.Place{Kind: kind, At: at})
	}
	return s, nil
}

// Close ends the stores.
func (s *Stores) Close() error {
	var errs []error
	if s.objects != nil {
		s.objects.Close()
	}
	for _, one := range s.systems {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}
