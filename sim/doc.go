// Package sim runs policies on virtual time: access logs go through the same engine that serves, as fast as they can be read, and what
// would have happened is counted.
package sim
