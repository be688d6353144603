package main

// heapRoomBytes is by how much the heap counts as larger than it is. What a member keeps alive is 3
// to 8 MB while its state is small, under load, too.
const heapRoomBytes = 12 << 20

// heapRoom lets the heap of a small member grow before garbage is collected. Go collects when what
// was live at the last collection has doubled, so with 4 MB live it does so every 4 MB, which under
// load is 20 times a second, and each time costs the same. The room counts as live and is never
// written, so it takes no physical memory: the next collection begins at
//
//	2 * (live + heapRoomBytes)
//
// bytes. That is 32 MB with 4 MB live, a floor, and with 400 MB live 824 MB instead of 800. A
// percentage that is set anew after each collection would do the same, but late: between a
// collection and that, a heap that grows fast, as at a start with a large snapshot, would have the
// goal of a small one, many times what is live. The room needs no such adjustment.
//
// heapRoom returns nil if GOGC or GOMEMLIMIT is set. Otherwise the caller keeps the room alive
// until the process ends. It has to be allocated before the heap has been used, because Go clears
// memory that it uses again.
func heapRoom(getenv func(string) string) []byte {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, heapRoomBytes)
}
