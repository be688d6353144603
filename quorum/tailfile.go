package quorum

import (
	"io"
	"os"
)

// blockBytes is what a tail is written in, where the page cache is passed by: the usual size of a block of a file system and of a
// page, and a multiple of what disks ask for.
const blockBytes = 4096

// aheadBytes is how far ahead of what is written there are zeros on the disk. The file's room is reserved, but where a file system
// has noted that nothing was written there yet, it has to note with each write that something was: a second write, to its journal.
const aheadBytes = 256 << 10

// tailFile is the newest segment, open to be written to. All of it is in memory, zeros to its end, so that blocks can be written as
// they are. Where the file system lets it, a write passes by the page cache (O_DIRECT) and is on the disk when it returns (O_DSYNC),
// which takes a quarter less time, and less CPU, than a write into the page cache and an fdatasync.
//
// A block in which the end of a batch stands is written again with the batch behind it, as the page cache would, too. What
// stood there before is the same in both, so a write that is cut short takes nothing away: a sector is as it was or as it is to be.
//
// The file's other descriptor must not be used to read what is written here while it is: what the page cache holds may be
// older than the disk.
type tailFile struct {
	*segment
	content []byte   // of the whole file
	direct  *os.File // nil where there is no such thing
	written int64    // up to here there are zeros, or batches, that were written past the page cache; 0 before the first one is
}

// openTail opens a segment to be written to. Content is all of it; it must be aligned (alignedBytes) and belongs to the tail from now on.
func openTail(s *segment, content []byte) (*tailFile, error) {
	t := &tailFile{segment: s, content: content}
	if s.size%blockBytes != 0 {
		return t, nil
	}
	var err error
	t.direct, err = openDirect(s.path)
	return t, err
}

// reuse makes the memory of the tail before this one that of this one, which has no batches. Nobody may read that any more.
func (t *tailFile) reuse(memory []byte) {
	if int64(len(memory)) == t.size {
		clear(memory)
	} else {
		memory = alignedBytes(int(t.size))
	}
	copy(memory, t.start())
	t.content = memory
}

// write writes b, which is on the disk when it returns.
func (t *tailFile) write(b []byte, at int64) error {
	end := at + int64(copy(t.content[at:], b))
	if t.direct == nil {
		if _, err := t.f.WriteAt(b, at); err != nil {
			return err
		}
		return syncData(t.f)
	}
	from, to := at&^(blockBytes-1), (end+blockBytes-1)&^(blockBytes-1)
	if at >= segmentStart && to > t.written { // a mark needs no room
		to = min(to+aheadBytes, t.size)
		t.written = to
	}
	_, err := t.direct.WriteAt(t.content[from:to], from)
	return err
}

// ReadAt implements io.ReaderAt. It reads what has been written, or is being.
func (t *tailFile) ReadAt(b []byte, at int64) (int, error) {
	n := copy(b, t.content[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// close ends the writing. The segment stays open to be read.
func (t *tailFile) close() error {
	if t == nil || t.direct == nil {
		return nil
	}
	return t.direct.Close()
}
