/* A library for the test to load: its frame lies between what throws and what catches. */
void call_through(void (*callback)(void*), void* argument);

void call_through(void (*callback)(void*), void* argument) {
  callback(argument);
  __asm__ volatile(""); /* so that the call is not a jump */
}
