//go:build !linux

package sessionfile

import (
	"errors"
	"os"
)

// No way is known here to tell whether a file is of this boot of this machine.

func lockFile(*os.File) error        { return errors.ErrUnsupported }
func unlockFile(*os.File) error      { return errors.ErrUnsupported }
func place(*os.File) (string, error) { return "", errors.ErrUnsupported }
func private(*os.File) error         { return errors.ErrUnsupported }
