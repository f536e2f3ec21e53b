/* A library, but none that speaks DCMI. */
int something_else(void)
{
    return 0;
}
