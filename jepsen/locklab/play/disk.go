package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"

	"lockkeeper/jepsen/locklab/system"
)

// before is the directory with a server's data as they were when its disk began to lie.
func before(server system.Server) string { return server.Data() + ".before" }

// copyDisk keeps the contents of a server's disk at one moment.
func copyDisk(ctx context.Context, server system.Server) error {
	err := server.Pause()
	if err == nil {
		var out []byte
		if out, err = exec.CommandContext(ctx, "cp", "-a", server.Data(), before(server)).CombinedOutput(); err != nil {
			err = fmt.Errorf("play: copy the data of %s: %w: %s", server.Name(), err, out)
		}
	}
	return errors.Join(err, server.Resume())
}

// hitDisk kills the servers that have the lock, and starts the one with the lying disk, with those
// that were away. Alone with a replica, the server comes back beside it.
func (s *Stage) hitDisk(ctx context.Context, trios []*trio, away []int) error {
	s.failed = true
	servers, liar := s.sys.Servers(), s.liar
	for i, server := range servers {
		if slices.Contains(away, i) || len(away) == 0 && i != liar {
			continue
		}
		s.note(trios, Broke, "%s is killed", server.Name())
		if err := s.kill(i); err != nil {
			return err
		}
	}
	s.note(trios, Broke, "%s comes back, without what it has written since A asked for the lock", servers[liar].Name())
	err := os.RemoveAll(servers[liar].Data())
	if err == nil {
		err = os.Rename(before(servers[liar]), servers[liar].Data())
	}
	if err != nil {
		return fmt.Errorf("play: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	var starting sync.WaitGroup
	for _, i := range append(away, liar) { // none of them may serve alone
		starting.Go(func() {
			if err := servers[i].Start(ctx); err != nil {
				s.note(trios, Healed, "%s does not serve: %v", servers[i].Name(), err)
				return
			}
			s.note(trios, Healed, "%s serves", servers[i].Name())
		})
	}
	starting.Wait()
	return nil
}
