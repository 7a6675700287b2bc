package room

// behind is how far the clock of a queue is behind what it had shown: none or up to two steps back,
// in microseconds, the smaller one first.
//
// The time of a room goes on where its clock steps back, as on a replica that is promoted and slow:
// otherwise the queue would stand still for the length of the step. When the clock reads no less than
// the room's time, it counts again. So a clock that swings never gives the room more time than goes by.
type behind [2]int64

// time returns the room's time at a reading of the clock, not before the latest one.
func (b *behind) time(reading, latest int64) int64 {
	switch {
	case reading >= latest:
		*b = behind{}
		return reading
	case b[0] > 0 && reading+b[0] >= latest:
		b[1] = 0
		return reading + b[0]
	case b[1] > 0 && reading+b[1] >= latest:
		return reading + b[1]
	case b[1] > 0: // the one that is larger is nearer to what the clock shows now
		b[0] = b[1]
		b[1] = latest - reading
	case b[0] > 0:
		b[1] = latest - reading
	default:
		b[0] = latest - reading
	}
	return latest
}
