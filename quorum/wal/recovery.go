package wal

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Open opens the log of a manifest and verifies all of it. It removes the traces of a crash, and
// returns a sentence for each such repair. Errors begin with the name of the file that they are
// about; ErrDamaged is in the chain of errors about bytes that have changed since they were
// written.
func Open(o Options, m Manifest) (_ *Log, repaired []string, err error) {
	numbers, repaired, err := listSegments(o, m.Newest)
	if err != nil {
		return nil, nil, err
	}
	l := newLog(o)
	l.lock() // for the timer of the watermark
	defer l.unlock()
	defer func() {
		if err != nil {
			for _, s := range l.segments {
				_ = s.f.Close()
			}
		}
	}()
	// The segments before a gap were to be removed.
	from := len(numbers) - 1
	for from > 0 && numbers[from-1] == numbers[from]-1 {
		from--
	}
	r := replay{log: l}
	for _, n := range numbers[from:] {
		s, content, err := openSegment(o.FS, o.Dir, m.Log, n)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", segmentPath(o.Dir, n), err)
		}
		if err := r.next(s, content); err != nil {
			return nil, nil, err
		}
	}
	torn, err := r.finish(m.End)
	if err != nil {
		return nil, nil, err
	}
	if s := l.lastSegment(); torn > 0 {
		if err := s.write(make([]byte, torn-l.end), l.end); err != nil {
			return nil, nil, err
		}
		repaired = append(repaired, fmt.Sprintf("removed a torn write from the end of %s (%d bytes after entry %d): "+
			"it had not been acknowledged", s.path, torn-l.end, l.last))
	}
	l.committed = r.committed
	for _, n := range numbers[:from] {
		if err := o.FS.Remove(segmentPath(o.Dir, n)); err != nil {
			return nil, nil, err
		}
	}
	if err := l.remove(l.takeUnneeded()); err != nil {
		return nil, nil, err
	}
	if l.mark.end != l.end {
		l.watermarkLater() // opening the file has synced all of it
	}
	return l, repaired, nil
}

// listSegments returns the numbers of the segments, in order, and removes those that were not
// finished.
func listSegments(o Options, newest uint64) (numbers []uint64, repaired []string, err error) {
	names, err := o.FS.ReadDir(o.Dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		path := filepath.Join(o.Dir, name)
		if strings.HasSuffix(name, segmentSuffix+newSuffix) {
			if err := o.FS.Remove(path); err != nil {
				return nil, nil, err
			}
			repaired = append(repaired, "removed the unfinished segment "+path+": nothing had been written to it")
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSuffix(name, segmentSuffix), 10, 64); err == nil &&
			segmentPath(o.Dir, n) == path {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if n := len(numbers); n > 0 && numbers[n-1] == newest+1 {
		// The manifest did not have it yet.
		path := segmentPath(o.Dir, newest+1)
		if err := removeUnused(o.FS, path); err != nil {
			return nil, nil, err
		}
		repaired = append(repaired, "removed the segment "+path+": nothing had been written to it")
		numbers = numbers[:n-1]
	}
	if n := len(numbers); n == 0 || numbers[n-1] < newest {
		return nil, nil, fmt.Errorf("%s: %w: the file is missing", segmentPath(o.Dir, newest), ErrDamaged)
	} else if numbers[n-1] > newest {
		return nil, nil, fmt.Errorf("%s: %w: there should be no such file, segment %d is the last one",
			segmentPath(o.Dir, numbers[n-1]), ErrDamaged, newest)
	}
	return numbers, repaired, nil
}

// removeUnused removes a segment that has no batches.
func removeUnused(files FS, path string) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	content, err := readAll(f)
	_ = f.Close()
	if err != nil {
		return err
	}
	if len(content) < segmentStart || !isZero(content[segmentStart:]) {
		return fmt.Errorf("%s: %w: there should be nothing in this file", path, ErrDamaged)
	}
	return files.Remove(path)
}

// replay repeats the batches of a log.
type replay struct {
	log       *Log
	held      uint64 // the index of the entry in the first place
	committed uint64
	content   []byte // of the newest segment so far
}

// next adds a segment with its content. Errors name the file.
func (r *replay) next(s *segment, content []byte) error {
	l := r.log
	path := s.path
	var err error
	if len(l.segments) == 0 {
		l.first, l.last, r.held = s.first, s.last, s.last+1
	} else if l.end != s.prevEnd || l.sum != s.prevSum {
		// All of the segment before was durable before this one was created.
		path, err = l.lastSegment().path, damagedf("the bytes at %d are not what was written; all was durable up to %d",
			l.end, s.prevEnd)
	} else if s.first != l.first || s.last != l.last {
		err = damagedf("it follows entries %d to %d, and the segment before it ends with %d to %d", s.first, s.last,
			l.first, l.last)
	}
	l.segments = append(l.segments, s)
	if err == nil {
		r.committed, r.content = max(r.committed, s.committed), content
		err = r.batches(s, content)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// batches repeats the batches of a segment.
func (r *replay) batches(s *segment, content []byte) error {
	m, err := s.newestWatermark(content)
	if err != nil {
		return err
	}
	end, sum, err := s.scan(content, func(at int64, b batch,
		payload []byte) error {
		return r.apply(s, at, b, payload)
	})
	if err != nil {
		return err
	}
	r.log.continueAt(end, sum, m)
	return nil
}

// apply repeats a batch.
func (r *replay) apply(s *segment, at int64, b batch, payload []byte) error {
	l := r.log
	r.committed = max(r.committed, b.committed)
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
			return damagedf("entry %d follows entry %d", n, l.last)
		}
		if len(payload) < 4 || uint64(len(payload)-4) < uint64(binary.BigEndian.Uint32(payload)) {
			return damagedf("entry %d: %v", n, errTooShort)
		}
		length := binary.BigEndian.Uint32(payload)
		if err := checkRecord(n, payload[4:4+length]); err != nil {
			return damagedf("%v", err)
		}
		l.places = append(l.places, place{seg: s, at: uint32(at) + 4, length: length})
		l.last = n
		payload = payload[4+length:]
		at += 4 + int64(length)
	}
	return nil
}

// finish verifies the end of the log, up to synced all of which must be there, and that no entry is
// missing. It returns the offset up to which there is something left of a torn write, 0 when there
// is nothing. Errors name the file.
func (r *replay) finish(synced int64) (torn int64, err error) {
	l := r.log
	s := l.lastSegment()
	if torn, err = s.tornWrite(r.content, l.end, max(l.mark.end, synced)); err != nil {
		return 0, fmt.Errorf("%s: %w", s.path, err)
	}
	if l.first > l.last {
		l.places = nil
		return torn, nil
	}
	if r.held > l.first {
		return 0, fmt.Errorf("%s: %w", l.segments[0].path,
			damagedf("the entries from %d on are missing: so are the segments before this one", l.first))
	}
	l.places = slices.Clone(l.places[l.first-r.held:])
	return torn, nil
}
