package store

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// What an append costs, with its fsyncs, in either kind of log: entries of 200 bytes, several to a
// write.
func BenchmarkAppend(b *testing.B) {
	for _, kind := range []LogKind{LogBolt, LogWAL} {
		for _, n := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/entries=%d", kind, n), func(b *testing.B) {
				log, err := openLog(b.TempDir(), kind, 0)
				if err != nil {
					b.Fatal(err)
				}
				defer log.Close()
				logs := make([]*raft.Log, n)
				next := uint64(1)
				b.ReportAllocs()
				for b.Loop() {
					for i := range logs {
						logs[i] = &raft.Log{Index: next, Term: 1, Data: make([]byte, 200)}
						next++
					}
					if err := log.entries.StoreLogs(logs); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
