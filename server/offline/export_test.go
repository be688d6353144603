package offline

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
	"lockkeeper/zkdata"
)

// A member may have voted in a term without having an entry of it. Its export says so, and
// ZooKeeper does not begin that epoch again: the member with the vote may have entries of it.
func TestExportOfAVoter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS("../../zkdata/testdata/zookeeper-3.8.0")); err != nil {
		t.Fatal(err)
	}
	cfg := zoocfg.Config{Data: zoocfg.Data{Dir: dir}, Client: zoocfg.Client{Addr: "127.0.0.1:0"}}.WithDefaults()
	if err := Import(t.Context(), cfg, ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, voted := range []uint64{1, 7} { // the imported entry has term 1
		if err := withStopped(t.Context(), &cfg, func(s store.Stores) error {
			return errors.Join(s.SetNumber(store.Term, voted), s.SetNumber(store.VoteTerm, voted))
		}); err != nil {
			t.Fatal(err)
		}
		back := filepath.Join(t.TempDir(), "back")
		e, err := Export(t.Context(), cfg, "", back)
		if err != nil {
			t.Fatal(err)
		}
		files, err := zkdata.List(back, back)
		if err != nil {
			t.Fatal(err)
		}
		if e.Epoch != 1 || files.CurrentEpoch != 1 || files.AcceptedEpoch != int64(voted) {
			t.Errorf("voted in %d: epoch %d, currentEpoch %d, acceptedEpoch %d; want 1, 1, %d", voted, e.Epoch,
				files.CurrentEpoch, files.AcceptedEpoch, voted)
		}
		in, err := Inspect(t.Context(), dir, "", 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if in.Epoch != 1 || in.AcceptedEpoch != int64(voted) {
			t.Errorf("voted in %d: inspect says epoch %d, accepted %d", voted, in.Epoch, in.AcceptedEpoch)
		}
	}
}
