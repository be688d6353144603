package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// openSegmentLog opens the segments that were noted, and verifies all that they hold. Errors name what is
// damaged. It repairs what a crash leaves behind, and says so.
func openSegmentLog(noted segmentsNote, note func(segmentsNote) error, dir string, segmentBytes int64) (_ *segmentLog, repaired []string, err error) {
	numbers, repaired, err := listSegments(dir, noted.newest)
	if err != nil {
		return nil, nil, err
	}
	l := &segmentLog{dir: dir, segmentBytes: segmentBytes, note: note}
	defer func() {
		if err != nil {
			for _, s := range l.segments {
				_ = s.f.Close()
			}
		}
	}()
	// What stands before a gap was to be removed.
	from := len(numbers) - 1
	for from > 0 && numbers[from-1] == numbers[from]-1 {
		from--
	}
	r := replay{log: l}
	for _, n := range numbers[from:] {
		s, content, err := openSegment(dir, noted.log, n)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", segmentPath(dir, n), err)
		}
		if err := r.next(s, content); err != nil {
			return nil, nil, err
		}
	}
	torn, err := r.finish(noted.end)
	if err != nil {
		return nil, nil, err
	}
	if tail := l.tail(); torn > 0 {
		if err := tail.zeros(l.end, torn); err != nil {
			return nil, nil, err
		}
		repaired = append(repaired, fmt.Sprintf("removed a write that a crash had cut short from the end of %s (%d bytes behind entry %d): it had not been answered", tail.path, torn-l.end, l.last))
	}
	l.applied = r.applied
	for _, n := range numbers[:from] {
		if err := os.Remove(segmentPath(dir, n)); err != nil {
			return nil, nil, err
		}
	}
	if err := l.removeUnneeded(); err != nil {
		return nil, nil, err
	}
	if l.mark.end != l.end {
		l.markLater() // the check had everything synced
	}
	return l, repaired, nil
}

// listSegments finds the segments, in their order, and removes what was begun and not finished.
func listSegments(dir string, newest uint64) (numbers []uint64, repaired []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, f := range files {
		name := filepath.Join(dir, f.Name())
		if strings.HasSuffix(f.Name(), segmentSuffix+newSuffix) {
			if err := os.Remove(name); err != nil {
				return nil, nil, err
			}
			repaired = append(repaired, "removed the unfinished segment "+name+": nothing had been written to it")
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSuffix(f.Name(), segmentSuffix), 10, 64); err == nil && segmentPath(dir, n) == name {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if n := len(numbers); n > 0 && numbers[n-1] == newest+1 {
		// The log had not got into it yet.
		name := segmentPath(dir, newest+1)
		if err := removeUnused(name); err != nil {
			return nil, nil, err
		}
		repaired = append(repaired, "removed the segment "+name+": nothing had been written to it")
		numbers = numbers[:n-1]
	}
	if n := len(numbers); n == 0 || numbers[n-1] < newest {
		return nil, nil, fmt.Errorf("%s: %w: the file is missing", segmentPath(dir, newest), ErrDamaged)
	} else if numbers[n-1] > newest {
		return nil, nil, fmt.Errorf("%s: %w: there should be no such file, segment %d is the last one", segmentPath(dir, numbers[n-1]), ErrDamaged, newest)
	}
	return numbers, repaired, nil
}

// removeUnused removes a segment that there may be, but nothing in it.
func removeUnused(name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(content) < segmentStart || !isZero(content[segmentStart:]) {
		return fmt.Errorf("%s: %w: there should be nothing in this file", name, ErrDamaged)
	}
	return os.Remove(name)
}

// replay does to a log what its batches say.
type replay struct {
	log     *segmentLog
	held    uint64 // the index of the first place
	applied uint64
	content []byte // of the newest segment so far
}

// next adds the segment with that content. Errors name the file.
func (r *replay) next(s *segment, content []byte) error {
	l := r.log
	path := s.path
	var err error
	if len(l.segments) == 0 {
		l.first, l.last, r.held = s.first, s.last, s.last+1
	} else if l.end != s.prevEnd || l.sum != s.prevSum {
		// All of the one before was on the disk before this one was begun.
		path, err = l.tail().path, damagedf("what stands at %d is not what was written; up to %d all was on the disk", l.end, s.prevEnd)
	} else if s.first != l.first || s.last != l.last {
		err = damagedf("it goes on behind entries %d to %d, and the segment before it ends with %d to %d", s.first, s.last, l.first, l.last)
	}
	l.segments = append(l.segments, s)
	if err == nil {
		r.applied, r.content = max(r.applied, s.applied), content
		err = r.batches(s, content)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// batches does what the batches of a segment say.
func (r *replay) batches(s *segment, content []byte) error {
	m, err := s.newestMark(content)
	if err != nil {
		return err
	}
	end, sum, err := s.scan(content, func(at int64, b batch, payload []byte) error { return r.apply(s, at, b, payload) })
	if err != nil {
		return err
	}
	r.log.continueIn(end, sum, m)
	return nil
}

// apply does what a batch says.
func (r *replay) apply(s *segment, at int64, b batch, payload []byte) error {
	l := r.log
	r.applied = max(r.applied, b.applied)
	switch b.kind {
	case batchEntries:
		return r.entries(s, at+batchHeadLen, b.index, payload)
	case batchCut:
		if b.index < l.first || b.index > l.last {
			return damagedf("it removes entries from %d on, of %d to %d", b.index, l.first, l.last)
		}
		l.last = b.index - 1
		r.held = min(r.held, b.index)
		l.places = l.places[:min(uint64(len(l.places)), b.index-r.held)]
	case batchFirst:
		if b.index < l.first || b.index > l.last+1 {
			return damagedf("it removes entries before %d, of %d to %d", b.index, l.first, l.last)
		}
		l.first = b.index
	case batchReset:
		l.first, l.last, r.held, l.places = b.index, b.index-1, b.index, nil
	}
	return nil
}

func (r *replay) entries(s *segment, at int64, index uint64, payload []byte) error {
	l := r.log
	for n := index; len(payload) > 0; n++ {
		if n != l.last+1 {
			return damagedf("entry %d stands behind entry %d", n, l.last)
		}
		if len(payload) < 4 || uint64(len(payload)-4) < uint64(binary.BigEndian.Uint32(payload)) {
			return damagedf("entry %d: %v", n, errTooShort)
		}
		length := binary.BigEndian.Uint32(payload)
		if err := checkEntryRecord(n, payload[4:4+length]); err != nil {
			return damagedf("%v", err)
		}
		l.places = append(l.places, place{seg: s, at: uint32(at) + 4, length: length})
		l.last = n
		payload = payload[4+length:]
		at += 4 + int64(length)
	}
	return nil
}

// finish judges the end of the log, and whether all entries are there. It returns up to where the trace of a write reaches
// that a crash has cut short; 0 when there is none. Up to noted all must be there. Errors name the file.
func (r *replay) finish(noted int64) (torn int64, err error) {
	l := r.log
	tail := l.tail()
	if torn, err = tail.tornEnd(r.content, l.end, max(l.mark.end, noted)); err != nil {
		return 0, fmt.Errorf("%s: %w", tail.path, err)
	}
	if l.first > l.last {
		l.places = nil
		return torn, nil
	}
	if r.held > l.first {
		return 0, fmt.Errorf("%s: %w", l.segments[0].path, damagedf("the entries from %d on are missing: so are the segments before this one", l.first))
	}
	l.places = slices.Clone(l.places[l.first-r.held:])
	return torn, nil
}
