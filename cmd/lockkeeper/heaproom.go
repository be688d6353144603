package main

// heapRoomBytes is by how much the heap counts as larger than it is. What a member keeps alive is 3
// to 8 MB while its state is small, under load, too.
const heapRoomBytes = 12 << 20

// heapRoom lets the heap of a small member grow before garbage is collected. Go collects when what
// was live at the last collection has doubled, so with 4 MB live it does so every 4 MB, which under
// load is 20 times a second, and each time costs the same. The room counts as live, and is never
// touched, so that no memory stands behind it: the next collection begins at
//
//	2 * (live + heapRoomBytes)
//
// bytes. That is 32 MB with 4 MB live, a floor, and with 400 MB live 824 MB instead of 800. A
// percentage that is set anew after each collection would do the same, but late: between a
// collection and that, a heap that grows fast, as at a start with a large snapshot, would have the
// goal of a small one, many times what is live. The room does not have to be told.
//
// Whoever has set GOGC or GOMEMLIMIT wants something else, and gets that: nil. Else the room is to
// be kept alive until the process ends. It is to be made before the heap has been used, for memory
// that is used again is cleared first.
func heapRoom(getenv func(string) string) []byte {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, heapRoomBytes)
}
