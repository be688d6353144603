//go:build unix

package quorum

import "syscall"

// errQuota says that the user may have no more room, though the disk may.
const errQuota = syscall.EDQUOT
