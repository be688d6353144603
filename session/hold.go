package session

// Hold counts n bytes that a member holds for somebody who is no client of it, in the account of
// the connections; false if these hold so much that there is no room. Release ends it.
func (m *Manager) Hold(n int) bool {
	if m.memory.held.Load()+int64(n) > m.memory.limit/2 {
		return false
	}
	m.memory.add(n)
	return true
}

// Release ends what Hold began.
func (m *Manager) Release(n int) { m.memory.add(-n) }
