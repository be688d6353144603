package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// heapGoal collects garbage, and says what was live and at how many bytes the next collection is to
// be over.
func heapGoal() (live, goal uint64) {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// The room raises the goal by twice its size, whatever else is live.
func TestHeapRoomRaisesTheGoal(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for _, stateBytes := range []int{0, 64 << 20} {
		state := make([]byte, stateBytes)
		room := heapRoom(func(string) string { return "" })
		live, goal := heapGoal()
		if want := uint64(stateBytes + heapRoomBytes); live < want || goal < 2*want || goal > 2*live+live/2 {
			t.Errorf("with a state of %d bytes: %d bytes count as live, and the goal is %d", stateBytes, live, goal)
		}
		runtime.KeepAlive(room)
		runtime.KeepAlive(state)
	}
}

// An operator who has set the pace has set it.
func TestHeapRoomLeavesSettingsAlone(t *testing.T) {
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		if room := heapRoom(func(name string) string { return map[string]string{set: "50"}[name] }); room != nil {
			t.Errorf("with %s the room has %d bytes", set, len(room))
		}
	}
}
