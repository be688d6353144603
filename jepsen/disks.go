package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Disks are file systems of their own for the members' data, one for each, to be filled, to fail,
// and to lose power. Each is an ext4 in an image file, mounted in a mount namespace where only its
// member sees it.
//
// Power is cut with an ioctl of the file system that was made for such tests (shutdown without
// flushing its journal): unsynced bytes are gone, and until it is mounted anew every access fails
// with EIO, every fsync too.
//
// The namespaces live as long as the processes that keep them, which end with this process. The
// kernel unmounts then, and frees the loop devices.
type Disks struct {
	keepers []*Process // that hold the mount namespaces
	images  []string
	points  []string // where they are mounted; set by mount
}

// DiskBytes is how large each disk is. The image files are sparse.
const DiskBytes = 256 << 20

// FindDisks names, as an error, the missing requirements for Disks.
func FindDisks() error {
	for _, program := range []string{"unshare", "nsenter", "mount", "umount", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("jepsen: %s: %w (Linux: apt-get install util-linux mount e2fsprogs)", program, ErrMissing)
		}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("jepsen: the right to mount file systems: %w (run as root)", ErrMissing)
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return fmt.Errorf("jepsen: loop devices: %w", ErrMissing)
	}
	return nil
}

// NewDisks makes n disks. Their images, and their processes' logs, go to dir.
func NewDisks(ctx context.Context, n int, dir string) (*Disks, error) {
	if err := FindDisks(); err != nil {
		return nil, err
	}
	d := &Disks{points: make([]string, n)}
	for i := 1; i <= n; i++ {
		if err := d.add(ctx, fmt.Sprintf("disk%d", i), dir); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

func (d *Disks) add(ctx context.Context, name, dir string) error {
	image := filepath.Join(dir, name+".img")
	file, err := os.Create(image)
	if err == nil {
		err = errors.Join(file.Truncate(DiskBytes), file.Close())
	}
	if err != nil {
		return fmt.Errorf("jepsen: disk: %w", err)
	}
	// Nothing reserved for root, which the members are; no work left for later.
	err = run(exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image))
	if err != nil {
		return err
	}
	keeper, err := keepNamespace(ctx, name, dir, "mnt", "--mount", "--propagation", "private")
	if err != nil {
		return err
	}
	d.keepers, d.images = append(d.keepers, keeper), append(d.images, image)
	return nil
}

// run runs a command to its end.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("jepsen: %s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// enter is the command line that runs another one where disk i is mounted.
func (d *Disks) enter(i int) []string {
	return []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", d.keepers[i-1].pid)}
}

// inside runs a command where disk i is mounted.
func (d *Disks) inside(i int, args ...string) error {
	args = append(d.enter(i), args...)
	return run(exec.Command(args[0], args[1:]...))
}

// mount mounts disk i for the first time.
func (d *Disks) mount(i int, point string) error {
	d.points[i-1] = point
	return d.inside(i, "mount", "-t", "ext4", "-o", "loop", d.images[i-1], point)
}

// Path is where this process finds a file or directory of disk i, which its member knows as name.
func (d *Disks) Path(i int, name string) string {
	return fmt.Sprintf("/proc/%d/root%s", d.keepers[i-1].pid, name)
}

// at does something to disk i, with its files at point for this process.
func (d *Disks) at(i int, what string, do func(point string) error) error {
	if err := do(d.Path(i, d.points[i-1])); err != nil {
		return fmt.Errorf("jepsen: %s disk %d: %w", what, i, err)
	}
	return nil
}

// Fill leaves no free space on disk i.
func (d *Disks) Fill(i int) error {
	return d.at(i, "fill", func(point string) error {
		file, err := os.OpenFile(filepath.Join(point, "filler"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		return allocateAll(file, DiskBytes)
	})
}

// Empty gives back the space that Fill took, for good: it is not undone when the power fails.
func (d *Disks) Empty(i int) error {
	return d.at(i, "empty", func(point string) error {
		if err := os.Remove(filepath.Join(point, "filler")); err != nil {
			return err
		}
		dir, err := os.Open(point)
		if err != nil {
			return err
		}
		return errors.Join(dir.Sync(), dir.Close())
	})
}

// Fail cuts the power of disk i: unsynced bytes are lost, and nothing works until Renew.
func (d *Disks) Fail(i int) error {
	return d.at(i, "fail", func(point string) error {
		dir, err := os.Open(point)
		if err != nil {
			return err
		}
		defer dir.Close()
		return shutDown(dir)
	})
}

// Renew mounts disk i anew, as a machine does that starts. Nobody may use it at that time.
func (d *Disks) Renew(i int) error {
	if err := d.inside(i, "umount", d.points[i-1]); err != nil {
		return err
	}
	return d.mount(i, d.points[i-1])
}

// Close gives everything back. The images stay.
func (d *Disks) Close() error {
	var errs []error
	for _, p := range d.keepers {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}
