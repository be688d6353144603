//go:build linux || darwin || freebsd

package datadir

import "syscall"

// FreeBytes is how much more a user that is not root may write on the disk of dir; false if that is
// not known.
func FreeBytes(dir string) (int64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
