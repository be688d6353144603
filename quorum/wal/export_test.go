package wal

// What tests need to know of the format.
const (
	SegmentStart   = segmentStart
	SectorBytes    = sectorBytes
	WatermarkAfter = watermarkAfter
	DescriptorWait = descriptorWait
)

// SegmentPath is the path of a segment.
func SegmentPath(dir string, number uint64) string { return segmentPath(dir, number) }

// End is where the batches in the last segment end, and up to where its watermark says that they
// are durable.
func (l *Log) End() (end, durable int64) {
	l.lock()
	defer l.unlock()
	return l.end, l.mark.end
}

// WriteWatermark writes a watermark now.
func (l *Log) WriteWatermark() error {
	l.lock()
	defer l.unlock()
	return l.writeWatermark()
}
